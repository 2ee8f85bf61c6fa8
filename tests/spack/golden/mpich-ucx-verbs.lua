-- MPICH VERSION over UCX (ud,self,rc). Written by Spack: do not edit.
whatis("Name: mpich-ucx")
whatis("Version: VERSION")
whatis("Description: MPICH VERSION over UCX (ud,self,rc)")
whatis("Category: MPI transport")
whatis("Interface: eth1, RDMA port that UCX chooses")

help([==[
MPICH VERSION over UCX (ud,self,rc)

Site:      test
Interface: eth1, RDMA port that UCX chooses
In a node: shared memory
MPI:       EXTERNALS/mpich
Spack:     mpi-transport/HASH with mpich/HASH

Loading it puts this MPI's compilers (mpicc, mpifort) and launchers into PATH, sets the
variables of this path, and shows the programs that were built with this MPI: module avail.
Start programs with srun. Only one transport is loaded at a time.

Figures: none measured yet (seatrial stack modules --figures trials/<trial>).
]==])

-- Slurm sets both variables on the nodes of a job. A login node may have no such interface.
if mode() == "load" then
    local node, cluster = os.getenv("SLURMD_NODENAME"), os.getenv("SLURM_CLUSTER_NAME")
    local made_for = "mpich-ucx is a module of site test, cluster seatrial"
    local advice = "Use the modules of this cluster: module avail, and module unuse for the folder of test."
    if cluster and cluster:lower() ~= "seatrial" then
        LmodError(made_for .. ", and this job runs on cluster " .. cluster .. ". " .. advice)
    end
    if not cluster then
        local file = io.open(os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf")
        local text = file and file:read("*a"):lower() or ""
        if file then file:close() end
        local other = ("\n" .. text):match('\n%s*clustername%s*=%s*"?([^%s"#]+)')
        if other and other ~= "seatrial" then
            -- not LmodWarning, after which `module load` has failed
            LmodMessage("Warning: " .. made_for .. ", and this host is of cluster " .. other .. ". " .. advice)
        end
    end
    if node and not isDir("/sys/class/net/eth1") then
        LmodError(made_for .. ". It sends through interface eth1, which node " .. node .. " does not have. " .. advice)
    end
end
family("mpi")
local tree = myFileName():gsub("/[^/]+/[^/]+$", "")
prepend_path("MODULEPATH", pathJoin(tree, "mpich/VERSION-HASH/Core"))
prepend_path("PATH", "EXTERNALS/mpich/bin", ":")
setenv("SLURM_MPI_TYPE", "pmi2")
setenv("MPIR_CVAR_CH4_NETMOD", "ucx")
setenv("UCX_TLS", "ud,self,rc,sm")

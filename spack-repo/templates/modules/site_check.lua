{#- Refuses to load on a node of another site. Variables: transport, site, cluster (ClusterName of
    slurm.conf, empty: unknown), interface (empty: the MPI chooses) and rdma_port (as mlx5_0:1; empty:
    none, or UCX chooses). site_check.tcl does the same. -#}
-- Slurm sets both variables on the nodes of a job. A login node may have no such interface.
if mode() == "load" then
    local node, cluster = os.getenv("SLURMD_NODENAME"), os.getenv("SLURM_CLUSTER_NAME")
    local made_for = "{{ transport }} is a module of site {{ site }}{% if cluster %}, cluster {{ cluster }}{% endif %}"
    local advice = "Use the modules of this cluster: module avail, and module unuse for the folder of {{ site }}."
{% if cluster %}
    if cluster and cluster:lower() ~= "{{ cluster | lower }}" then
        LmodError(made_for .. ", and this job runs on cluster " .. cluster .. ". " .. advice)
    end
    if not cluster then
        local file = io.open(os.getenv("SLURM_CONF") or "/etc/slurm/slurm.conf")
        local text = file and file:read("*a"):lower() or ""
        if file then file:close() end
        local other = ("\n" .. text):match('\n%s*clustername%s*=%s*"?([^%s"#]+)')
        if other and other ~= "{{ cluster | lower }}" then
            -- not LmodWarning, after which `module load` has failed
            LmodMessage("Warning: " .. made_for .. ", and this host is of cluster " .. other .. ". " .. advice)
        end
    end
{% endif %}
{% if interface %}
    if node and not isDir("/sys/class/net/{{ interface }}") then
        LmodError(made_for .. ". It sends through interface {{ interface }}, which node " .. node .. " does not have. " .. advice)
    end
{% endif %}
{% if rdma_port %}
    if node and not isDir("/sys/class/infiniband/{{ rdma_port.split(":")[0] }}/ports/{{ rdma_port.split(":")[1] }}") then
        LmodError(made_for .. ". It sends through RDMA port {{ rdma_port }}, which node " .. node .. " does not have. " .. advice)
    end
{% endif %}
end

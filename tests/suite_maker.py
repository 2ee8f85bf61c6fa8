"""A source like that of NPB 3.4: one kernel, FT, which is a single exchange of all with all."""

from __future__ import annotations

from pathlib import Path

MAKEFILE = """\
include ../config/make.def
../bin/ft.$(CLASS).x: ft.f90
	sed 's/CLASS/$(CLASS)/' ft.f90 > made.f90
	$(MPIFC) -c $(FFLAGS) made.f90
	$(FLINK) $(FLINKFLAGS) -o $(BINDIR)/ft.$(CLASS).x made.o
clean:
	rm -f *.o made.f90
"""
#: 10 MB to each
FT = """\
program ft
  implicit none
  include 'mpif.h'
  integer, parameter :: n = 1250000
  double precision, allocatable :: out(:), in(:)
  double precision :: start, seconds, mops
  integer :: rank, ranks, error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate(out(n * ranks), in(n * ranks))
  out = rank
  start = MPI_Wtime()
  call MPI_Alltoall(out, n, MPI_DOUBLE_PRECISION, in, n, MPI_DOUBLE_PRECISION, &
                    MPI_COMM_WORLD, error)
  seconds = MPI_Wtime() - start
  if (rank == 0) then
    print '(a)', ' FT Benchmark Completed.'
    print '(a)', ' Class           =                        CLASS'
    print '(a)', ' Size            =            64x  64x  64'
    print '(a)', ' Iterations      =                        1'
    print '(a, f12.6)', ' Time in seconds = ', seconds
    print '(a, i12)', ' Total processes = ', ranks
    ! the operations that ft.f90 counts for one iteration
    mops = 64d0**3 * (14.8157 + 5.23518 + (7.19641 + 7.21113) * log(64d0**3)) / seconds / 1d6
    print '(a, f16.4)', ' Mop/s total     = ', mops
    print '(a, f16.4)', ' Mop/s/process   = ', mops / ranks
    if (in(n * ranks) == ranks - 1) print '(a)', ' Verification    =               SUCCESSFUL'
    print '(a)', ' Version         =                    3.4.3'
  end if
  call MPI_Finalize(error)
end program ft
"""
#: below the folder NPB3.4-MPI
FILES = {
    "sys/make.common": "", "config/README": "", "IS/is.c": "", "FT/Makefile": MAKEFILE,
    "FT/ft.f90": FT,
}  # fmt: skip


def make_suite(folder: Path) -> Path:
    """The folder NPB3.4-MPI."""
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder

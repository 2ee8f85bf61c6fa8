"""ReFrame's configuration, derived from a site: nobody writes it twice.

A partition of ReFrame is a Slurm partition under one NIC profile, an environment is a
transport. Features are the names of the benchmarks that the site wants there, so that a
check selects with ``+imb`` and never names a system.

A job of a check asks for the profile by itself (``--constraint``). Where a trial holds nodes under
a profile (``ALLOCATION``), its checks are not jobs but steps in that one job: their scripts run
here, one after the other, and each ``srun`` names the job.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from seatrial.base.names import NO_TRANSPORT, PLAIN_SOCKETS
from seatrial.base.paths import CHECKOUT
from seatrial.benchmarks.programs import available
from seatrial.site.load import load_site
from seatrial.site.model import Benchmark, Site
from seatrial.site.profiles import carrying, measured_on, tried
from seatrial.stack import Stack, load_stack

CHECKS = CHECKOUT / "reframe-checks"
#: benchmarks that run without MPI, and the pseudo transport they run under
WITHOUT_MPI = {
    "tcp_stream": PLAIN_SOCKETS,
    "tcp_streams": PLAIN_SOCKETS,
    "links": PLAIN_SOCKETS,
    "node_compute": NO_TRANSPORT,
}
#: environment variable: how often each case is run, instead of the site's number
REPEATS = "SEATRIAL_REPEATS"
#: environment variable: the number of the first of them, where it is not 0
FIRST_REPEAT = "SEATRIAL_FIRST_REPEAT"
#: environment variable: what alone is run, as JSON of check -> ``transports``, ``nodes`` and
#: ``nodelists``, which has ``transport.nodes`` -> the nodes
ONLY = "SEATRIAL_ONLY"
#: environment variable: the job that a trial holds, as JSON of ``profile``, ``job``, ``nodes``
ALLOCATION = "SEATRIAL_ALLOCATION"
#: environment variable: what distinguishes the log of one of several ReFrame runs of a trial
ROUND = "SEATRIAL_ROUND"
# ReFrame slows its polling from the first to the last of these rates (Hz) by the decay factor at
# each poll. Its own defaults leave gaps of up to 49 s; a poll costs one sacct (about 20 ms).
POLL_RATES = {"poll_rate_max": 5, "poll_rate_min": 2, "poll_rate_decay": 0.02}


def settings(site_file: Path | str) -> dict[str, Any]:
    """The value of ``site_configuration`` for the site in ``site_file``.

    Raises InputError where the file is wrong, or the stack is not there.
    """
    file = Path(site_file).resolve()
    site = load_site(file)
    prefix = os.environ.get("SEATRIAL_RUN_FOLDER", "")
    return {
        "systems": [_system(site, file, prefix)],
        "environments": _environments(site),
        "logging": [_logging(prefix)],
        "storage": [_storage(site)],
        "general": [
            {
                "check_search_path": [str(CHECKS)],
                "pipeline_timeout": 5,
                "purge_environment": False,
                "use_login_shell": False,
                "trap_job_errors": False,
                "remote_detect": False,
                "resolve_module_conflicts": False,
                **POLL_RATES,
            }
        ],
    }


def _system(site: Site, file: Path, prefix: str) -> dict[str, Any]:
    partitions = [
        _partition(site, file, name, profile)
        for name in site.partitions
        for profile in site.nic_profiles
    ]
    system = {
        "name": site.name,
        "descr": site.description or site.name,
        "hostnames": [site.login or ".*"],
        "modules_system": modules_system(site),
        "partitions": partitions,
    }
    if prefix:
        system["stagedir"] = f"{prefix}/stage"
        system["outputdir"] = f"{prefix}/output"
        system["prefix"] = prefix
    return system


def modules_system(site: Site) -> str:
    """ReFrame's name of what `module load` is: none where the stack has no modules."""
    if site.stack.source != "spack":
        return "nomod"
    return {"lmod": "lmod", "tcl": "tmod4"}[site.stack.modules]


def partition_name(partition: str, profile: str) -> str:
    """ReFrame's name of a Slurm partition under a NIC profile."""
    return partition if profile == "default" else f"{partition}_{profile}"


def feature_of(site: Site, profile: str) -> str | None:
    """The Slurm node feature by which a job asks for a profile; None: it need not ask."""
    return None if profile == "default" else site.nic_profiles[profile].feature


def held_allocation(profile: str) -> dict[str, Any] | None:
    """The job that the trial holds under a profile (``job``, ``nodes``), by the environment."""
    found = json.loads(os.environ.get(ALLOCATION) or "{}")
    return found if found.get("profile") == profile else None


def _partition(site: Site, file: Path, name: str, profile: str) -> dict[str, Any]:
    partition = site.partitions[name]
    access = [f"--partition={name}", *partition.options]
    feature = feature_of(site, profile)
    if feature:
        access.append(f"--constraint={feature}")
    held = held_allocation(profile) if name == site.trial_partition else None
    wanted = name == site.trial_partition and profile in matching(
        site.trial.profiles, site.nic_profiles
    )
    features = [
        benchmark
        for benchmark, options in enabled(site)
        if wanted and profile in matching(options.profiles, site.nic_profiles)
    ]
    extras: dict[str, Any] = {"site_file": str(file), "profile": profile, "partition": name}
    if held:
        extras["allocation"] = held
    return {
        "name": partition_name(name, profile),
        "descr": f"{partition.description or name}, NIC profile {profile}",
        "scheduler": "local" if held else site.slurm.backend,
        "launcher": "srun",
        "access": [] if held else access,
        "environs": [env for env in environment_names(site) if tried(site, profile, env)],
        # Steps of one job would disturb each other.
        "max_jobs": 1 if held else site.slurm.jobs_in_queue,
        "features": features,
        "sched_options": {"use_nodes_option": True, "job_submit_timeout": 60},
        "extras": extras,
    }


def only(check: str, what: Literal["transports", "nodes"], usual: list) -> list:
    """Those of a check's usual transports or numbers of nodes that are run, by the environment."""
    found = json.loads(os.environ.get(ONLY) or "null")
    if found is None:
        return usual
    return [one for one in usual if one in found.get(check, {}).get(what, [])]


def nodelist(check: str, transport: str, nodes: int) -> str:
    """The nodes that a check must run on, by the environment; empty: those that Slurm chooses."""
    found = json.loads(os.environ.get(ONLY) or "{}").get(check, {})
    return found.get("nodelists", {}).get(f"{transport}.{nodes}", "")


def enabled(site: Site) -> list[tuple[str, Benchmark]]:
    return [(name, options) for name, options in site.benchmarks if options is not None]


def matching(patterns: list[str], names: Any) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def environment_names(site: Site) -> list[str]:
    return [*site.transports, PLAIN_SOCKETS, NO_TRANSPORT]


def offered(site: Site, stack: Any, transport: str) -> list[str]:
    """The benchmarks that the site wants under a transport and whose program the stack has."""
    features = []
    for name, options in enabled(site):
        if name in WITHOUT_MPI:
            if WITHOUT_MPI[name] == transport:
                features.append(name)
            continue
        if transport == PLAIN_SOCKETS:
            if name == "netpipe" and options.plain_sockets:  # type: ignore[attr-defined]
                features.append(name)
            continue
        if transport == NO_TRANSPORT or not matching(options.transports, [transport]):
            continue
        if available(name, options, stack.programs(transport), stack.blas()):
            features.append(name)
    return features


def _environments(site: Site) -> list[dict[str, Any]]:
    """Each transport on the interface of most profiles, and once more for the partitions of the
    profiles that are measured on another: another network's, or a bond."""
    stack = load_stack(site)
    found = []
    for name in environment_names(site):
        usual = _measured(site, name, "default")
        elsewhere: dict[tuple[str, str], list[str]] = {}
        for profile in site.nic_profiles:
            place = _measured(site, name, profile)
            if place != usual:
                elsewhere.setdefault(place, []).extend(
                    f"{site.name}:{partition_name(partition, profile)}"
                    for partition in site.partitions
                )
        found.append(_environment(site, stack, name, *usual))
        for place, partitions in elsewhere.items():
            own = _environment(site, stack, name, *place)
            found.append({**own, "target_systems": partitions})
    return found


def _measured(site: Site, transport: str, profile: str) -> tuple[str, str]:
    """Interface and subnet that a transport is tried on under a profile.

    A network that the profile's bond takes away is not tried under it: ``validate_profiles`` sees
    to that.
    """
    network = measured_on(site, transport, profile)
    own = site.networks[network]
    return carrying(site, profile).get(network, own.interface), own.subnet


def _environment(
    site: Site, stack: Stack, name: str, interface: str, subnet: str
) -> dict[str, Any]:
    part = stack.transport(name, interface, subnet)
    own = site.transports.get(name)
    env = {**part.env, **(own.env if own else {})}
    wanted = matching(site.trial.transports, [name])
    there = offered(site, stack, name) if wanted else []
    return {
        "name": name,
        "features": [check for check in there if name in only(check, "transports", [name])],
        # What the transport's module sets is here too: it must hold for the network under test.
        "env_vars": [[key, value] for key, value in env.items()],
        "modules": part.modules,
        "prepare_cmds": [f"module use {folder}" for folder in stack.modulepath if part.modules],
        "extras": {
            "programs": part.programs,
            "launcher": [*part.launcher, *(own.options if own else [])],
            "path_report": part.path_report,
            "overcommit": part.overcommit,
            "blas": stack.blas(),
            "versions": part.versions,
            "packages": {
                name: package.model_dump(exclude={"spec"})
                for name, package in part.packages.items()
            },
        },
    }


def _logging(prefix: str) -> dict[str, Any]:
    # An info log costs a fifth of the debug log's CPU time per check.
    return {
        "level": "info",
        "handlers": [
            {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
            {
                "type": "file",
                "name": f"{prefix or '.'}/reframe{os.environ.get(ROUND, '')}.log",
                "level": "info",
                "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
                "append": False,
            },
        ],
        "handlers_perflog": [
            {
                "type": "filelog",
                "prefix": "%(check_system)s/%(check_partition)s",
                "level": "info",
                "basedir": f"{prefix or '.'}/perflogs",
                "format": "%(check_job_completion_time)s|%(version)s|%(check_display_name)s|"
                "%(check_environ)s|%(check_jobid)s|%(check_result)s|%(check_perfvalues)s",
                "append": True,
            }
        ],
    }


def _storage(site: Site) -> dict[str, Any]:
    folder = os.environ.get("SEATRIAL_DATABASE_FOLDER", "")
    storage: dict[str, Any] = {"enable": True, "backend": "sqlite"}
    if folder:
        storage["sqlite_db_file"] = f"{folder}/{site.name}.sqlite"
    return storage

"""ReFrame's configuration, derived from a plan.

A partition of ReFrame is a Slurm partition under one NIC profile, an environment is a transport:
``openmpi-tcp``, or ``openmpi-tcp--rail2`` where the site measures several networks.
The features are the names of the benchmarks, so a check selects with ``+imb`` and names no system.

The job of a check requests the profile (``--constraint``). If a trial holds a job for the profile,
its checks are steps in that job: their scripts run on the host of the trial, one after the other,
and each ``srun`` names the job.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from reframe.core.exceptions import ConfigError
from reframe.core.schedulers import slurm
from reframe.core.settings import site_configuration
from reframe.utility import osext

from seatrial.base.errors import SeatrialError
from seatrial.base.paths import CHECKS
from seatrial.checks.database import database_of, require_own_database
from seatrial.plan.model import (
    PLAN_FILE,
    Attachment,
    Part,
    Plan,
    environment_name,
    read_part,
)
from seatrial.plan.resolve import plan_of

# ReFrame's own format of performance logs, which other tools read.
PERFLOG_HANDLERS = site_configuration["logging"][0]["handlers_perflog"]
# Rates in Hz. ReFrame reduces the rate from max to min by the decay factor at each poll. With its
# defaults two polls may be 49 s apart; a poll costs one sacct (about 20 ms).
POLL_RATES = {"poll_rate_max": 5, "poll_rate_min": 2, "poll_rate_decay": 0.02}

# A restart of slurmdbd makes sacct fail at each poll. ReFrame's 3 failures are over in two seconds,
# these take 10 to 25 minutes.
SACCT_FAILURES = 3000

_all_ended = slurm.slurm_state_completed


def job_has_ended(states: str | None) -> bool:
    """Whether a job has ended, from the states of its accounting records, joined by commas.

    A job that goes on after the loss of a node (``--no-kill``) has one more record: of the time
    before the loss, whose state stays RESIZING. ReFrame would wait for the end of that record.
    """
    left = [state for state in (states or "").split(",") if state != "RESIZING"]
    return bool(_all_ended(",".join(left)))


slurm.slurm_state_completed = job_has_ended

_poll = slurm.SqueueJobScheduler.poll


def poll(self: slurm.SqueueJobScheduler, *jobs: Any) -> None:
    """Update the states of jobs by squeue. A job that it does not list has ended.

    squeue lists none if slurmctld does not answer in time. ReFrame then takes all jobs for ended,
    so the states that were known stay, until squeue has answered.
    """
    before = [(job, job._state) for job in jobs if job is not None]
    _poll(self, *jobs)
    missing = [
        (job, state) for job, state in before if job_has_ended(job._state) and state != job._state
    ]
    if not missing:
        return
    ids = ",".join(job.jobid for job, _ in missing)
    answer = osext.run_command(f'{self._squeue} -h -j {ids} -o "%F"')
    errors = answer.stderr.strip().splitlines()
    if answer.returncode == 0 or (errors and all("Invalid job id" in error for error in errors)):
        self._silent = False
        listed = set(answer.stdout.split())
    else:
        if not getattr(self, "_silent", False):  # once for each silence
            self.log(f"Slurm does not answer: {' '.join(errors)}", level=logging.WARNING)
            self._silent = True
        listed = {job.jobid for job, _ in missing}
    for job, state in missing:
        if job.jobid in listed:
            job._state = state


slurm.SqueueJobScheduler.poll = poll


def settings(file: Path | str) -> dict[str, Any]:
    """The value of ``site_configuration`` for a site's ``site.yaml`` or a trial's ``plan.json``.

    Raises ConfigError, which ReFrame prints without a traceback, if the file is wrong or the stack
    is not installed.
    """
    path = Path(file).resolve()
    try:
        return configuration(plan_of(path), read_part(path.parent), path)
    except SeatrialError as error:
        raise ConfigError(str(error)) from None


def configuration(plan: Plan, part: Part | None, file: Path) -> dict[str, Any]:
    """The same for a plan, which is in ``file``, and the part of the trial, if one runs."""
    system: dict[str, Any] = {
        "name": plan.site,
        "descr": plan.description or plan.site,
        "hostnames": [".*"],
        "modules_system": plan.modules_system,
        "partitions": [
            _partition(plan, part, file, name, profile)
            for name in plan.partitions
            for profile in plan.profiles
        ],
    }
    if part:
        folder = part.folder
        system |= {"stagedir": f"{folder}/stage", "outputdir": f"{folder}/output", "prefix": folder}
    return {
        "systems": [system],
        "environments": [
            environment
            for name in plan.environments
            for environment in _environments(plan, part, name)
        ],
        "logging": [_logging(part)],
        "storage": [_storage(plan, part, file)],
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


def _partition(
    plan: Plan, part: Part | None, file: Path, name: str, profile: str
) -> dict[str, Any]:
    partition, planned = plan.partitions[name], plan.profiles[profile]
    access = [f"--partition={name}", *partition.options]
    if planned.feature:
        access.append(f"--constraint={planned.feature}")
    used = name == plan.partition
    held = part.held(profile) if part and used else None
    return {
        "name": plan.partition_name(profile, name),
        "descr": f"{partition.description or name}, NIC profile {profile}",
        "scheduler": "local" if held else plan.backend,
        "launcher": "srun",
        "access": [] if held else access,
        "environs": [
            environment
            for environment, (transport, network) in plan.environments.items()
            if transport in planned.transports
            and any(
                profile in attachment.profiles
                for attachment in attachments(plan, transport, network)
            )
        ],
        # Steps of one job would disturb each other.
        "max_jobs": 1 if held else plan.jobs_in_queue,
        "features": planned.benchmarks if used else [],
        "sched_options": {
            "use_nodes_option": True,
            "job_submit_timeout": 60,
            "max_sacct_failures": SACCT_FAILURES,
        },
        "extras": {"plan": str(file), "profile": profile, "partition": name},
    }


def attachments(plan: Plan, transport: str, network: str) -> list[Attachment]:
    """The attachments of a transport to a network, one for each interface that carries it.

    Network "": the first of each profile.
    """
    part = plan.transports[transport]
    chosen = [attachment for attachment in part.attachments if network in ("", attachment.network)]
    if network:
        return chosen
    profiles = dict.fromkeys(profile for attachment in chosen for profile in attachment.profiles)
    first = {profile: part.under(profile) for profile in profiles}
    return [
        attachment.model_copy(
            update={"profiles": [name for name in profiles if first[name] is attachment]}
        )
        for attachment in chosen
        if any(used is attachment for used in first.values())
    ]


def _environments(plan: Plan, part: Part | None, name: str) -> list[dict[str, Any]]:
    """An environment for each interface of a transport on a network.

    The first is for the interface of the profile ``default``. The others are for the partitions of
    profiles with another interface: that of another network, or a bond.
    """
    usual, *others = attachments(plan, *plan.environments[name])
    environments = [_environment(plan, part, name, usual)]
    for attachment in others:
        partitions = [
            f"{plan.site}:{plan.partition_name(profile, partition)}"
            for profile in attachment.profiles
            for partition in plan.partitions
        ]
        environment = _environment(plan, part, name, attachment)
        environments.append({**environment, "target_systems": partitions})
    return environments


def _environment(plan: Plan, part: Part | None, name: str, where: Attachment) -> dict[str, Any]:
    transport = plan.transports[plan.environments[name][0]]
    here = {case.check for case in plan.cases if environment_name(case) == name}
    return {
        "name": name,
        "features": [
            check
            for check in transport.benchmarks
            if check in here and (part is None or part.selects(check, name))
        ],
        # These replace what the transport's module sets for users: no shared memory within a node,
        # perhaps another network. The job script exports them and is kept as evidence.
        "env_vars": [[key, value] for key, value in where.env.items()],
        "modules": transport.modules,
        "prepare_cmds": [f"module use {path}" for path in plan.modulepath if transport.modules],
    }


def _logging(part: Part | None) -> dict[str, Any]:
    folder, suffix = (part.folder, part.suffix) if part else (".", "")
    # An info log costs a fifth of the debug log's CPU time per check.
    return {
        "level": "info",
        "handlers": [
            {"type": "stream", "name": "stdout", "level": "info", "format": "%(message)s"},
            {
                "type": "file",
                "name": f"{folder}/reframe{suffix}.log",
                "level": "info",
                "format": "[%(asctime)s] %(levelname)s: %(check_info)s: %(message)s",
                "append": False,
            },
        ],
        "handlers_perflog": [
            {**handler, "basedir": f"{folder}/perflogs"} for handler in PERFLOG_HANDLERS
        ],
    }


def _storage(plan: Plan, part: Part | None, file: Path) -> dict[str, Any]:
    storage: dict[str, Any] = {"enable": True, "backend": "sqlite"}
    folder = Path(part.database) if part else None
    if folder is None and file.name == PLAN_FILE and len(file.parents) > 3:
        # After a trial, ReFrame finds the trial's sessions by the trial's settings.
        folder = database_of(file.parents[3], os.geteuid())
        require_own_database(folder, os.geteuid())
    if folder is not None and folder.is_dir():
        storage["sqlite_db_file"] = f"{folder}/{plan.site}.sqlite"
    return storage

"""The state machine of a node: a job begins under a profile, and ends.

These hold at every moment, whichever process is killed:

- Nothing is changed before a journal with the state to go back to is on disk.
- A journal is removed only after that state was read back and found equal, or after a reboot.
- Only the owner's Epilog, or the node itself once the owner is dead, undoes a profile.
- A Prolog whose slurmd has died, or that began before its job's Epilog ended, leaves nothing.
- If a change cannot be undone and verified, an exception says so; the exit code drains the node.
"""

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import changes, programs, readers, values
from .errors import Late, NicError, Refused, SettingRefused, Unrestored
from .owner import BY_HAND, GRACE_S, is_of_job, owner_of
from .settings import SWITCHES
from .store import TOMBSTONES_KEPT_S, Busy, Damaged, Store, Tombstone
from .work import Basis, Journal, Work

#: of the lock: longer than any change takes, shorter than PrologEpilogTimeout
LOCK_S = 40.0
#: part of a Prolog's time that applying leaves to its rollback
ROLLBACK = 1 / 3
#: what a health check has before it says why the node is drained: Slurm kills it after 60 s
HEALTH_S = 30.0
#: how long an Epilog waits for processes of its own job that Slurm is ending
STEPS_END_S = 10.0


class Job(NamedTuple):
    """What Slurm says of a job; ``cluster`` is as of ``owner.cluster``."""

    id: str
    restart: str
    uid: str
    cluster: str = ""


def _say_nothing(_: str) -> None:
    pass


class Session:
    """One command on the node. ``tell`` is called with a line for the log at each event."""

    def __init__(
        self,
        policy: Any,
        store: Store,
        nic: Any,
        world: Any,
        guard: Any,
        tell: Callable[[str], None] = _say_nothing,
    ) -> None:
        self.policy = policy
        self.store = store
        self.nic = nic
        self.work = Work(policy, nic, guard)
        self.world = world
        self.tell = tell

    # -- a job begins

    def begin_job(
        self, job: Job, name: Optional[str], profile: Optional[Dict[str, Any]] = None
    ) -> None:
        """Apply a profile to this node for a job; with None or ``default``, only make sure that no
        other is in force. Raises NicError if the job must not start here.

        ``profile`` is the policy's of that name unless it is given."""
        who = "job %s" % job.id
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._writing_reason(who, job.id == BY_HAND))
            try:
                stack.enter_context(self._lock())
            except Busy:
                self._refuse_late_prolog(job)
                raise
            self._tell_if(self.store.reserve_space())
            self.store.remove_old_tombstones(self.world.now(), self.world.boot_id())
            self._refuse_late_prolog(job)
            if not self._undo_previous(job, name):
                return
            if name not in (None, "default"):
                self._apply(job, str(name), profile or self.policy.profile(name))

    def _lock(self) -> Any:
        return self.store.lock(min(LOCK_S, programs.seconds_left() / 2))

    @contextlib.contextmanager
    def _writing_reason(self, who: str, by_hand: bool = False) -> Any:
        """Write the reason of an error for the operator.

        A refusal of a command by hand is not written: the operator has it on the terminal."""
        try:
            yield
        except Late:
            raise
        except (NicError, OSError) as error:
            if not by_hand or not isinstance(error, Refused):
                self.write_reason("%s: %s" % (who, error))
            raise

    def write_reason(self, reason: str) -> None:
        """Write the reason for the operator; the log says if that fails. Raises nothing."""
        self._tell_if(self.store.write_reason(reason))

    def _tell_if(self, text: str) -> None:
        if text:
            self.tell(text)

    def _refuse_late_prolog(self, job: Job) -> None:
        """Raise Late if nobody waits for this Prolog any more."""
        if job.id == BY_HAND:
            return
        if not self.world.alive(self.world.slurmd):
            raise Late("this Prolog is orphaned: the slurmd that started it has ended")
        now = self.world.now()
        if now - self.world.started > TOMBSTONES_KEPT_S:
            raise Late("this Prolog is late: it began %d s ago" % (now - self.world.started))
        tombstone = self.store.tombstone(
            job.id, job.restart, now, self.world.boot_id(), job.cluster
        )
        # An Epilog that ended before this Prolog began was of an earlier start of a requeued job.
        if tombstone and tombstone.at >= self.world.started:
            raise Late("this Prolog is late: the job's Epilog has run already")

    def _undo_previous(self, job: Job, name: Optional[str]) -> bool:
        """Undo the profile of a dead owner; False if the job has its profile already."""
        journal = self._journal()
        if journal is None:
            if self.store.reason():
                self._check_drift()  # the reason may no longer hold
            return True
        if journal["boot_id"] != self.world.boot_id():
            self._forget(journal, "the node was rebooted, which reset its interfaces")
            return True
        if is_of_job(journal, job.id, job.cluster):
            if journal["profile"] == name and self.world.has_steps(job.id):
                return False
        elif self.owner_lives(journal):
            other = " of cluster %s" % journal["cluster"] if journal["job"] == job.id else ""
            raise Refused(
                "NIC profile %s is in force for %s%s"
                % (journal["profile"], owner_of(journal), other)
            )
        self.undo(journal, "its owner has ended")
        return True

    def _journal(self) -> Optional[Journal]:
        try:
            return self.store.journal()
        except Damaged:
            if self._restore_boot_state():
                return None
            raise Unrestored(
                "the journal was damaged; the interfaces are as they were at boot, which was "
                "verified: look at the node, then resume it"
            )

    def owner_lives(self, journal: Journal) -> bool:
        """Whether the job of a profile is on this node, or is about to be."""
        if journal["job"] == BY_HAND or self.world.has_steps(journal["job"]):
            return True
        if not self.world.alive(journal["slurmd"]):
            return False
        if self.world.alive(journal["prolog"]):
            return True
        # The extern step starts when all of the node's Prologs have ended.
        applied = journal.get("applied_at")
        return applied is not None and self.world.now() - applied < GRACE_S

    # -- applying

    def prepare(self, profile: Dict[str, Any]) -> Journal:
        """What applying a profile needs (``Work.prepare``). Changes nothing. Raises Refused if the
        profile must not be applied here now."""
        prepared = self.work.prepare(profile)
        self._tell_if("; ".join(self.work.warnings))
        self._refuse_drift(prepared["interfaces"])
        return prepared

    def _apply(self, job: Job, name: str, profile: Dict[str, Any]) -> None:
        begin = self.world.now()
        with programs.keeping(ROLLBACK):
            journal = self._journal_of(job, name, self.prepare(profile))
        try:
            self._complete_baseline(journal["interfaces"])
            self.store.save_journal(journal)
        except OSError as error:
            with contextlib.suppress(OSError):  # a disk that is read-only has none of it
                self.store.drop_journal()
            raise Refused("the journal cannot be written: %s; nothing was changed" % error)
        try:
            with programs.keeping(ROLLBACK):
                self.work.apply(journal, lambda: self.store.save_journal(journal))
            journal["phase"], journal["applied_at"] = "applied", self.world.now()
            self.store.save_journal(journal)
            self._refuse_late_prolog(job)
        except (Refused, SettingRefused, OSError, ValueError) as error:
            # Raises Unrestored by itself where that fails.
            self.undo(journal, "rolled back")
            if isinstance(error, Late):
                raise
            raise Refused("NIC profile %s: %s; all settings were restored" % (name, error))
        seconds = self.world.now() - begin
        self.store.note(event="applied", job=job.id, profile=name, seconds=round(seconds, 4))
        self.tell("profile %s applied for %s in %.3f s" % (name, owner_of(journal), seconds))

    def _journal_of(self, job: Job, name: str, prepared: Journal) -> Journal:
        return dict(
            prepared,
            job=job.id,
            restart=job.restart,
            uid=job.uid,
            cluster=job.cluster,
            profile=name,
            policy=self.policy.digest,
            phase="applying",
            at=self.world.now(),
            boot_id=self.world.boot_id(),
            prolog=list(self.world.me),
            slurmd=list(self.world.slurmd) if self.world.slurmd else None,
        )

    # -- restoring

    def end_job(self, job: Job, asked: bool) -> None:
        """A job has ended: undo its profile. ``asked`` says that its constraint names one.

        May run twice, before the Prolog has ended, or without any Prolog. Raises NicError.
        """
        if asked:
            try:
                # Before waiting for the lock: who holds it may be this job's late Prolog.
                self._write_tombstone(job, self.world.started)
            except OSError as error:
                self._require_journal(job, error)
        try:
            with self._lock(), self._writing_reason("job %s" % job.id):
                try:
                    self._undo_own(job)
                finally:
                    # slurmd 22.05 may start the Prolog of a cancelled job beside its Epilog. A
                    # later start of the job waits until the Epilog of a living slurmd has ended.
                    if asked and self.world.alive(self.world.slurmd):
                        with contextlib.suppress(OSError):  # the first one may do
                            self._write_tombstone(job, self.world.now())
        except Busy as error:
            self.write_reason("job %s: not restored: %s" % (job.id, error))
            raise Unrestored(str(error))

    def _write_tombstone(self, job: Job, at: float) -> None:
        grave = Tombstone(at, self.world.boot_id())
        self.store.write_tombstone(job.id, job.restart, grave, job.cluster)

    def _undo_own(self, job: Job) -> None:
        """Undo the profile of a job that has ended, if it is in force. Raises Unrestored."""
        journal = self._journal()
        if journal is None or not is_of_job(journal, job.id, job.cluster):
            return
        if journal["boot_id"] != self.world.boot_id():
            self._forget(journal, "the node was rebooted, which reset its interfaces")
        elif self._is_of_a_later_start(journal):
            self.tell("an Epilog that slurmd's end orphaned leaves the later start alone")
        else:
            self._wait_for_steps(job)
            self.undo(journal, "the job has ended")

    def _require_journal(self, job: Job, error: OSError) -> None:
        """Without a tombstone, only a Prolog that has written its journal cannot come too late."""
        with contextlib.suppress(Damaged):
            journal = self.store.journal()
            if journal is not None and is_of_job(journal, job.id, job.cluster):
                return
        raise Unrestored("the record that job %s has ended cannot be written: %s" % (job.id, error))

    def _is_of_a_later_start(self, journal: Journal) -> bool:
        orphaned = not self.world.alive(self.world.slurmd)
        return orphaned and journal["at"] > self.world.started

    def _wait_for_steps(self, job: Job) -> None:
        deadline = self.world.now() + STEPS_END_S
        while self.world.has_steps(job.id):
            if self.world.now() > deadline:
                raise Unrestored("processes of job %s still run: its profile stays" % job.id)
            self.world.sleep(0.1)

    def undo(self, journal: Journal, why: str) -> None:
        """Restore the state in the journal, verify it, and drop the journal. Raises Unrestored."""
        begin = self.world.now()
        trouble = self.work.restore(journal)
        for text in self.work.warnings:
            self.tell(text)
        if trouble:
            raise Unrestored(
                "NIC profile %s of %s could not be undone: %s"
                % (journal["profile"], owner_of(journal), "; ".join(trouble))
            )
        try:
            self.store.drop_journal()
        except OSError as error:
            raise Unrestored("restored, but the journal cannot be removed: %s" % error)
        seconds = self.world.now() - begin
        self.store.note(event="restored", job=journal["job"], profile=journal["profile"],
                        why=why, seconds=round(seconds, 4))  # fmt: skip
        self.tell("profile %s of %s undone in %.3f s: %s"
                  % (journal["profile"], owner_of(journal), seconds, why))  # fmt: skip

    def _forget(self, journal: Journal, why: str) -> None:
        self.store.drop_journal()
        self.store.note(event="forgotten", job=journal["job"], profile=journal["profile"], why=why)
        self.tell("profile %s of %s: %s" % (journal["profile"], owner_of(journal), why))

    def _restore_boot_state(self) -> bool:
        """After a damaged journal: restore the state at boot. Raises Unrestored.

        True if it was of an earlier boot, so that there was nothing to undo.
        """
        baseline = self.store.baseline()
        if not baseline:
            raise Unrestored(
                "the journal is damaged, and so is the record of the interfaces' state at boot: "
                "correct the interfaces, then seatrial-nic accept"
            )
        if baseline["boot_id"] != self.world.boot_id():
            # No profile is applied before there is a record of this boot.
            self.store.set_aside()
            self.store.note(event="forgotten", why="damaged journal of an earlier boot")
            return True
        said: List[str] = []
        trouble = self._replaced(baseline)
        for interface, before in sorted(baseline["interfaces"].items()):
            name = self.nic.find(baseline["identities"][interface])
            trouble += self.work.misnamed(interface, name)
            if name is None:
                continue
            # What a switch hid was in the journal only: what showed while it was on comes nearest.
            try:
                now = self.nic.read(name)
            except NicError as error:
                trouble.append(str(error))
                continue
            off = [key for key in SWITCHES if before.get(key) == "on" and now.get(key) == "off"]
            seen = values.hidden_values(before, off)
            basis = self._basis(baseline, interface)
            trouble += self.work.restore_interface(name, before, basis, said, seen)
        self.work.perform_all(changes.of_node(baseline["node"], self.nic.read_node()), said)
        trouble += self._node_left(baseline)
        if trouble:
            raise Unrestored("the journal is damaged: " + "; ".join(trouble + said))
        self.store.set_aside()
        self.store.note(event="mended", why="damaged journal; interfaces restored as at boot")
        return False

    # -- without a job

    def recover(self, wait: float, force: bool = False) -> str:
        """Undo the profile of a dead owner; returns a sentence. Raises Busy, Refused or Unrestored.

        With ``force``, also that of a living owner.
        """
        with self.store.lock(wait), self._writing_reason("recover"):
            # At boot, and in each health check: before a profile needs the room.
            self._tell_if(self.store.reserve_space())
            self.store.remove_old_tombstones(self.world.now(), self.world.boot_id())
            journal = self._journal()
            if journal is None:
                return self._check_drift()
            if journal["boot_id"] != self.world.boot_id():
                self._forget(journal, "the node was rebooted, which reset its interfaces")
                return "the node was booted since: nothing to undo; " + self._check_drift()
            if not force and self.owner_lives(journal):
                return "NIC profile %s is in force for %s" % (
                    journal["profile"],
                    owner_of(journal),
                )
            self.undo(journal, "undone by hand" if force else "its owner has ended")
            return "NIC profile %s of %s was undone" % (journal["profile"], owner_of(journal))

    def _check_drift(self) -> str:
        """Compare with the state at boot while no job is here; record it if there is none.

        Raises Unrestored where something differs.
        """
        if self.world.any_steps():
            return "no profile is in force"
        baseline = self.store.baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            self.accept()
            return "the interfaces' state was recorded"
        messages = self._node_left(baseline)
        for interface, before in sorted(baseline["interfaces"].items()):
            if not self._is_as_at_boot(baseline, interface, self.nic.identity(interface)):
                messages.append(_exchanged(interface))
                continue
            basis = self._basis(baseline, interface)
            messages += self.work.remaining(interface, before, basis, "at boot")
        if messages:
            raise Unrestored(_drift_message(messages))
        self._adopt(baseline)
        return "no profile is in force; the interfaces are as at boot"

    def _basis(self, baseline: Dict[str, Any], interface: str) -> Basis:
        versions = baseline.get("versions", {}).get(interface)
        return Basis(versions, baseline.get("ignored", []), [])

    def _adopt(self, baseline: Dict[str, Any]) -> None:
        """Bring the record of the boot to today's versions, after both were found equal.

        Keys that only these versions know are from now on compared as they are; what is ignored now
        stays so, because whoever sets it may stop and leave it changed.
        """
        names = sorted(baseline["interfaces"])
        versions = {name: self.nic.versions(name) for name in names}
        ignored = sorted({*baseline.get("ignored", []), *self.nic.ignored})
        if (versions, ignored) == (baseline.get("versions"), baseline.get("ignored")):
            return
        for text in self.work.warnings:
            self.tell(text)
        states = {}
        for name in names:
            now, then = self.nic.read(name), baseline["interfaces"][name]
            across = versions[name] != baseline.get("versions", {}).get(name)
            known, _, _ = values.comparable(then, now, (), across)
            states[name] = dict(now, **known) if across else then
        # On a full disk the next check does it.
        with contextlib.suppress(OSError):
            self.store.save_baseline(
                dict(
                    baseline,
                    interfaces=states,
                    identities={
                        name: dict(self.nic.identity(name), **then)
                        for name, then in baseline["identities"].items()
                    },
                    versions=versions,
                    ignored=ignored,
                )
            )
            self.store.note(event="versions", versions=versions, warnings=self.work.warnings)

    def _node_left(self, baseline: Dict[str, Any]) -> List[str]:
        return [
            "%s is %s, was %s at boot"
            % (difference.setting, values.shown(difference.actual), values.shown(difference.wanted))
            for difference in values.not_restored(baseline["node"], self.nic.read_node())
        ]

    def _replaced(self, baseline: Dict[str, Any]) -> List[str]:
        """Sentences on interfaces whose driver was reloaded: not all its settings can be read."""
        return [
            "the driver of %s was reloaded since boot: reboot the node" % interface
            for interface, then in sorted(baseline["identities"].items())
            if self.nic.identity(interface)["ifindex"] not in (then["ifindex"], None)
        ]

    def _is_as_at_boot(
        self, baseline: Dict[str, Any], interface: str, identity: Dict[str, Any]
    ) -> bool:
        """Whether the interface of this name is the one of the record, or there is none."""
        then = baseline["identities"].get(interface, identity)
        return identity["ifindex"] is None or readers.same_hardware(then, identity)

    def _complete_baseline(self, parts: Dict[str, Any]) -> None:
        """Record the state at boot of all interfaces that are about to change."""
        baseline = self.store.baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            self.accept()
            baseline = self.store.baseline() or {"interfaces": {}}
        missing = sorted(set(parts) - set(baseline["interfaces"]))
        if missing:
            for interface in missing:
                baseline["interfaces"][interface] = parts[interface]["before"]
                baseline["identities"][interface] = parts[interface]["identity"]
                baseline.setdefault("versions", {})[interface] = parts[interface]["versions"]
            self.store.save_baseline(baseline)

    def _refuse_drift(self, parts: Dict[str, Any]) -> None:
        """Refuse settings that no profile owns: restoring to them would keep them for ever."""
        baseline = self.store.baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            return
        messages = self._node_left(baseline)
        for interface in sorted(set(parts) & set(baseline["interfaces"])):
            if not self._is_as_at_boot(baseline, interface, parts[interface]["identity"]):
                messages.append(_exchanged(interface))
                continue
            part = parts[interface]
            messages += self.work.different(
                interface,
                baseline["interfaces"][interface],
                part["before"],
                self._basis(baseline, interface),
                part["versions"],
                "at boot",
            )
        if messages:
            raise Refused(_drift_message(messages))

    def accept(self) -> None:
        """Record the present state as the state at boot."""
        names = self.policy.interfaces
        self.store.save_baseline(
            {
                "boot_id": self.world.boot_id(),
                "host": self.policy.hostname,
                "interfaces": {interface: self.nic.read(interface) for interface in names},
                "identities": {interface: self.nic.identity(interface) for interface in names},
                "versions": {interface: self.nic.versions(interface) for interface in names},
                "ignored": list(self.nic.ignored),
                "node": self.nic.read_node(),
            }
        )


def _exchanged(interface: str) -> str:
    return "%s is another interface than at boot" % interface


def _drift_message(messages: List[str]) -> str:
    return (
        "no profile owns these settings: %s; restore them, or accept them with seatrial-nic accept"
        % "; ".join(messages)
    )

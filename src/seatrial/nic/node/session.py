"""The state machine: a job takes a profile on this node, and gives it back.

What holds at every moment, whatever is killed when:

- Nothing is changed before a journal with the state to go back to is on disk.
- A journal is removed only after that state was read back and found equal, or after a reboot.
- Only the owner's Epilog, or the node itself once the owner is dead, undoes a profile.
- A Prolog whose slurmd has died, or whose job's Epilog has run, leaves nothing applied.
- What cannot be undone and verified is told by an exception: the exit code then drains the node.
"""

import contextlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import changes, values
from .errors import Late, NicError, Refused, SettingRefused, Unrestored
from .owner import GRACE_S
from .settings import SWITCHES
from .store import Busy, Damaged, Store, Tombstone
from .work import Journal, Work, sentences

BY_HAND = "by hand"
#: of the lock: longer than any change takes, shorter than PrologEpilogTimeout
LOCK_S = 40.0
#: how long an Epilog waits for processes of its own job that Slurm is ending
STEPS_END_S = 10.0

Job = NamedTuple("Job", [("id", str), ("restart", str), ("uid", str)])


def _say_nothing(_: str) -> None:
    pass


class Session:
    """One command's dealing with the node. ``tell`` is given a line for the log at each event."""

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

    def take(self, job: Job, name: Optional[str], profile: Optional[Dict[str, Any]] = None) -> None:
        """Put a profile on this node for a job; with None or ``default``, only make sure that no
        other is in force. Raises NicError: the job must not start here then.

        ``profile`` is the policy's of that name unless it is given."""
        with self.store.lock(LOCK_S), self._explaining("job %s" % job.id, job.id == BY_HAND):
            self.store.sweep(self.world.now(), self.world.boot_id())
            self._refuse_the_dead(job)
            if not self._make_way(job, name):
                return
            if name not in (None, "default"):
                self._apply(job, str(name), profile or self.policy.profile(name))

    @contextlib.contextmanager
    def _explaining(self, who: str, by_hand: bool = False) -> Any:
        """Keep the reason of an error for the operator, who has it on the terminal already where
        something was only refused by hand."""
        try:
            yield
        except Late:
            raise
        except (NicError, OSError) as error:
            if not by_hand or not isinstance(error, Refused):
                self.store.explain("%s: %s" % (who, error))
            raise

    def _refuse_the_dead(self, job: Job) -> None:
        """Raise Refused if nobody waits for this Prolog any more."""
        if job.id == BY_HAND:
            return
        if not self.world.alive(self.world.slurmd):
            raise Late("this Prolog is orphaned: the slurmd that started it has ended")
        tombstone = self.store.tombstone(job.id, job.restart)
        # One from before this Prolog began is of an earlier start of a requeued job.
        of_this_boot = tombstone and tombstone.boot_id in ("", self.world.boot_id())
        if tombstone and of_this_boot and tombstone.at >= self.world.started:
            raise Late("this Prolog is late: the job's Epilog has run already")

    def _make_way(self, job: Job, name: Optional[str]) -> bool:
        """Undo what a dead owner left; False if the job has its profile already."""
        journal = self._journal()
        if journal is None:
            if self.store.reason():
                self._look_for_drift()  # is what was told still so?
            return True
        if journal["boot_id"] != self.world.boot_id():
            self._forget(journal, "the node was booted anew, which reset its interfaces")
            return True
        if journal["job"] == job.id:
            if journal["profile"] == name and self.world.has_steps(job.id):
                return False
        elif self.owner_lives(journal):
            raise Refused(
                "NIC profile %s is in force for %s" % (journal["profile"], _whose(journal))
            )
        self.give_back(journal, "its owner has ended")
        return True

    def _journal(self) -> Optional[Journal]:
        try:
            return self.store.journal()
        except Damaged:
            if self._mend():
                return None
            raise Unrestored(
                "the journal was damaged; the interfaces are as they were at boot, which was "
                "verified: look at the node, then resume it"
            )

    def owner_lives(self, journal: Journal) -> bool:
        """Whether the job that a profile was applied for is, or is about to be, on this node."""
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

    def _apply(self, job: Job, name: str, profile: Dict[str, Any]) -> None:
        begin = self.world.now()
        journal = self._journal_of(job, name, self.work.prepare(profile))
        self._refuse_drift(journal["interfaces"])
        self.store.keep_spare()
        try:
            self._complete_baseline(journal["interfaces"])
            self.store.save_journal(journal)
        except OSError as error:
            self.store.drop_journal()
            raise Refused("the journal cannot be written: %s; nothing was changed" % error)
        try:
            self.work.carry_out(journal, lambda: self.store.save_journal(journal))
            journal["phase"], journal["applied_at"] = "applied", self.world.now()
            self.store.save_journal(journal)
            self._refuse_the_dead(job)
        except (Refused, SettingRefused, OSError, ValueError) as error:
            # Raises Unrestored by itself where that fails.
            self.give_back(journal, "rolled back")
            if isinstance(error, Late):
                raise
            raise Refused("NIC profile %s: %s; all was put back" % (name, error))
        seconds = self.world.now() - begin
        self.store.note(event="applied", job=job.id, profile=name, seconds=round(seconds, 4))
        self.tell("profile %s applied for %s in %.3f s" % (name, _whose(journal), seconds))

    def _journal_of(self, job: Job, name: str, prepared: Journal) -> Journal:
        return dict(
            prepared,
            job=job.id,
            restart=job.restart,
            uid=job.uid,
            profile=name,
            policy=self.policy.digest,
            phase="applying",
            at=self.world.now(),
            boot_id=self.world.boot_id(),
            prolog=list(self.world.me),
            slurmd=list(self.world.slurmd) if self.world.slurmd else None,
        )

    # -- giving back

    def give_up(self, job: Job, asked: bool) -> None:
        """A job has ended: undo its profile. ``asked`` says that its constraint names one.

        May run twice, before the Prolog has ended, or without any Prolog. Raises NicError.
        """
        if asked:
            try:
                # Before waiting for the lock: who holds it may be this job's late Prolog.
                grave = Tombstone(self.world.started, self.world.boot_id())
                self.store.bury(job.id, job.restart, grave)
            except OSError as error:
                self._must_have_journal(job, error)
        try:
            with self.store.lock(LOCK_S), self._explaining("job %s" % job.id):
                journal = self._journal()
                if journal is None or journal["job"] != job.id:
                    return
                if journal["boot_id"] != self.world.boot_id():
                    self._forget(journal, "the node was booted anew, which reset its interfaces")
                    return
                if self._is_of_a_later_start(journal):
                    self.tell("an Epilog that slurmd's end orphaned leaves the later start alone")
                    return
                self._wait_for_steps(job)
                self.give_back(journal, "the job has ended")
        except Busy as error:
            self.store.explain("job %s: not put back: %s" % (job.id, error))
            raise Unrestored(str(error))

    def _must_have_journal(self, job: Job, error: OSError) -> None:
        """Without a tombstone, only a Prolog that has written its journal cannot come too late."""
        with contextlib.suppress(Damaged):
            journal = self.store.journal()
            if journal is not None and journal["job"] == job.id:
                return
        raise Unrestored("the tombstone of job %s cannot be written: %s" % (job.id, error))

    def _is_of_a_later_start(self, journal: Journal) -> bool:
        orphaned = not self.world.alive(self.world.slurmd)
        return orphaned and journal["at"] > self.world.started

    def _wait_for_steps(self, job: Job) -> None:
        deadline = self.world.now() + STEPS_END_S
        while self.world.has_steps(job.id):
            if self.world.now() > deadline:
                raise Unrestored("processes of job %s still run: its profile stays" % job.id)
            self.world.sleep(0.1)

    def give_back(self, journal: Journal, why: str) -> None:
        """Put all back as the journal says, verify it, and drop the journal. Raises Unrestored."""
        begin = self.world.now()
        trouble = self.work.put_back(journal)
        if trouble:
            raise Unrestored(
                "NIC profile %s of %s could not be undone: %s"
                % (journal["profile"], _whose(journal), "; ".join(trouble))
            )
        try:
            self.store.drop_journal()
        except OSError as error:
            raise Unrestored("put back, but the journal cannot be removed: %s" % error)
        seconds = self.world.now() - begin
        self.store.note(event="restored", job=journal["job"], profile=journal["profile"],
                        why=why, seconds=round(seconds, 4))  # fmt: skip
        self.tell("profile %s of %s undone in %.3f s: %s"
                  % (journal["profile"], _whose(journal), seconds, why))  # fmt: skip

    def _forget(self, journal: Journal, why: str) -> None:
        self.store.drop_journal()
        self.store.note(event="forgotten", job=journal["job"], profile=journal["profile"], why=why)
        self.tell("profile %s of %s: %s" % (journal["profile"], _whose(journal), why))

    def _mend(self) -> bool:
        """After a damaged journal: go to the state at boot. Raises Unrestored.

        True if it was of an earlier boot, so that there was nothing to undo.
        """
        baseline = self._baseline()
        if not baseline:
            raise Unrestored(
                "the journal is damaged, and so is the record of the interfaces' state at boot: "
                "put the interfaces right, then seatrial-nic accept"
            )
        if baseline["boot_id"] != self.world.boot_id():
            # No profile is applied before there is a record of this boot.
            self.store.set_aside()
            self.store.note(event="forgotten", why="damaged journal of an earlier boot")
            return True
        said: List[str] = []
        trouble = self._replaced(baseline)
        for interface, before in sorted(baseline["interfaces"].items()):
            # What a switch hid was in the journal only: what showed while it was on comes nearest.
            on = [key for key in SWITCHES if before.get(key) == "on"]
            seen = values.hidden_values(before, on)
            trouble += self.work.put_back_one(interface, before, said, seen)
        self.work.try_all(changes.of_node(baseline["node"], self.nic.read_node()), said)
        trouble += self._node_left(baseline)
        if trouble:
            raise Unrestored("the journal is damaged: " + "; ".join(trouble + said))
        self.store.set_aside()
        self.store.note(event="mended", why="damaged journal; interfaces put back as at boot")
        return False

    # -- the node by itself

    def recover(self, wait: float, force: bool = False) -> str:
        """Undo what a dead owner left; returns a sentence. Raises Busy, Refused or Unrestored.

        With ``force`` also what a living owner has.
        """
        with self.store.lock(wait), self._explaining("recover"):
            journal = self._journal()
            if journal is None:
                return self._look_for_drift()
            if journal["boot_id"] != self.world.boot_id():
                self._forget(journal, "the node was booted anew, which reset its interfaces")
                return "the node was booted since: nothing to undo; " + self._look_for_drift()
            if not force and self.owner_lives(journal):
                return "NIC profile %s is in force for %s" % (journal["profile"], _whose(journal))
            self.give_back(journal, "undone by hand" if force else "its owner has ended")
            return "NIC profile %s of %s was undone" % (journal["profile"], _whose(journal))

    def _look_for_drift(self) -> str:
        """Compare with the state at boot while no job is here; record it if there is none.

        Raises Unrestored where something differs.
        """
        if self.world.any_steps():
            return "no profile is in force"
        baseline = self._baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            self.accept()
            return "the interfaces' state was recorded"
        found = self._node_left(baseline)
        for interface, before in sorted(baseline["interfaces"].items()):
            found += self.work.left(interface, before, "at boot")
        if found:
            raise Unrestored(_unowned(found))
        return "no profile is in force; the interfaces are as at boot"

    def _baseline(self) -> Optional[Dict[str, Any]]:
        """The record of the interfaces' own state, without what is not looked at on this node."""
        baseline = self.store.baseline()
        ignored = getattr(self.nic, "ignored", ())
        if baseline and ignored:
            baseline["interfaces"] = {
                interface: {k: v for k, v in state.items() if not k.startswith(ignored)}
                for interface, state in baseline["interfaces"].items()
            }
        return baseline

    def _node_left(self, baseline: Dict[str, Any]) -> List[str]:
        return [
            "%s is %s, was %s at boot"
            % (one.setting, values.shown(one.found), values.shown(one.wanted))
            for one in values.to_put_back(baseline["node"], self.nic.read_node())
        ]

    def _replaced(self, baseline: Dict[str, Any]) -> List[str]:
        """A driver that was loaded anew has settings that cannot all be read."""
        return [
            "%s is another one than at boot: reboot the node" % interface
            for interface, identity in sorted(baseline.get("identities", {}).items())
            if self.nic.identity(interface) != identity
        ]

    def _complete_baseline(self, parts: Dict[str, Any]) -> None:
        """Before the first change: all that is about to change has a record of this boot."""
        baseline = self.store.baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            self.accept()
            baseline = self.store.baseline() or {"interfaces": {}}
        missing = sorted(set(parts) - set(baseline["interfaces"]))
        if missing:
            for interface in missing:
                baseline["interfaces"][interface] = parts[interface]["before"]
                baseline["identities"][interface] = parts[interface]["identity"]
            self.store.save_baseline(baseline)

    def _refuse_drift(self, parts: Dict[str, Any]) -> None:
        """Going back to settings that nobody owns would keep them for ever."""
        baseline = self._baseline()
        if not baseline or baseline["boot_id"] != self.world.boot_id():
            return
        found = self._node_left(baseline)
        for interface in sorted(set(parts) & set(baseline["interfaces"])):
            then, now = baseline["interfaces"][interface], parts[interface]["before"]
            found += sentences(interface, values.to_put_back(then, now), "at boot")
        if found:
            raise Refused(_unowned(found))

    def accept(self) -> None:
        """Record the present state as the one that the node has by itself."""
        names = self.policy.interfaces
        self.store.save_baseline(
            {
                "boot_id": self.world.boot_id(),
                "host": self.policy.hostname,
                "interfaces": {interface: self.nic.read(interface) for interface in names},
                "identities": {interface: self.nic.identity(interface) for interface in names},
                "node": self.nic.read_node(),
            }
        )


def _unowned(found: List[str]) -> str:
    return (
        "nobody owns these settings: %s; put them back, or accept them with seatrial-nic accept"
        % "; ".join(found)
    )


def _whose(journal: Journal) -> str:
    return "root (by hand)" if journal["job"] == BY_HAND else "job %s" % journal["job"]

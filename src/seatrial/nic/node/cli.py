"""The node's command: ``seatrial-nic [--policy FILE] VERB``. It reads no site file.

Exit codes: 0 as wanted, 1 differs, 2 refused, 3 bad input, 4 not restored or not verified.
"""

import contextlib
import json
import os
import sys
from typing import Any, Dict, List, Optional

from . import changes, constraint, mtus, neighbours, programs, show, values
from .actions import text_of
from .errors import BadInput, NicError, Refused, Unrestored
from .evidence import collect
from .guard import Guard
from .nic import DryRun, Nic, lacking, of_this_node
from .owner import BY_HAND, World, boot_id, cluster, owner_of
from .policy import DEFAULT_FILE, Policy
from .session import HEALTH_S, LOCK_S, Job, Session
from .store import Busy, Damaged, Store
from .work import ipv6_in, users_in

USAGE = """usage: seatrial-nic [--policy FILE] VERB [--profile P] [--interface I]... [--json]
                    [--all] [--dry-run] [--boot] [--force]
for people
  show      the settings of this node's interfaces under test
  diff      what a profile would change here (exit code 1 if anything)
  apply     put a profile on this node by hand, until restore (--dry-run: only print the commands)
  verify    whether the profile in force, or --profile, is what the interfaces have
  restore   undo what was applied by hand (--force: whoever owns it)
  recover   undo what a dead job left, and clear the reason
  accept    record the interfaces' present state as the one at boot
for Slurm   prolog, epilog, health, recover --boot; --seconds N: refuse instead of taking longer
exit codes  0 as wanted, 1 differs, 2 refused, 3 bad input, 4 not restored or not verified"""


#: of each of the two calls by which a health check drains the node
SCONTROL_S = 10.0
#: characters of a reason that Slurm gets: sinfo shows it in a column
MOST_REASON = 400


VALUED = ("--policy", "--profile", "--interface", "--restore-command", "--seconds")


def _seconds(text: str) -> float:
    if set(text) - set("0123456789") or not text.strip("0"):
        raise BadInput("--seconds needs a number of seconds, not %r" % text[:64])
    return float(text)


class Arguments:
    """The command line. Raises BadInput."""

    def __init__(self, words: List[str]) -> None:
        self.policy = DEFAULT_FILE
        self.verb = ""
        self.profile = ""
        self.interfaces: List[str] = []
        #: what `apply` prints as the command that restores; seatrial nic gives its own
        self.restore_command = "seatrial-nic restore"
        #: how long it may take: Slurm and systemd kill what takes longer
        self.seconds: Optional[float] = None
        self.flags = set()
        left = list(words)
        while left:
            word = left.pop(0)
            name, equals, value = word.partition("=")
            if name in VALUED:
                if not equals:
                    if not left:
                        raise BadInput("%s needs a value" % name)
                    value = left.pop(0)
                if name == "--interface":
                    self.interfaces.append(value)
                elif name == "--seconds":
                    self.seconds = _seconds(value)
                else:
                    setattr(self, name[2:].replace("-", "_"), value)
            elif word in ("--json", "--dry-run", "--boot", "--force", "--all"):
                self.flags.add(word[2:])
            elif word in ACTS and not self.verb:
                self.verb = word
            else:
                raise BadInput("%r is no verb or option" % word[:64])
        if not self.verb:
            raise BadInput("there is no verb")


def log(text: str) -> None:
    """To the node's log, and to Slurm's by standard error, as one line."""
    text = programs.one_line(text)
    sys.stderr.write("seatrial-nic: %s\n" % text)
    try:
        import syslog

        syslog.openlog("seatrial-nic", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_NOTICE, text)
    except (ImportError, OSError):
        pass


def say(text: str) -> None:
    """To standard output, for people: lines with text that a driver or another user may choose."""
    for line in text.split("\n"):
        print(programs.plain(line))


def session_of(policy: Policy, nic: Any = None, tell: Any = log) -> Session:
    guard = Guard()
    nic = of_this_node(nic or Nic(), guard.processes)
    return Session(policy, Store(policy.folder), nic, World(), guard, tell)


def _job() -> Job:
    number = os.environ.get("SLURM_JOB_ID", "")
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    if not number or not restart or set(number + restart) - set("0123456789"):
        raise BadInput(
            "SLURM_JOB_ID is %r: this verb is for Slurm's Prolog and Epilog" % number[:32]
        )
    return Job(number, restart, os.environ.get("SLURM_JOB_UID", "")[:16], cluster())


def _asked(policy: Policy) -> Optional[str]:
    text = os.environ.get("SLURM_JOB_CONSTRAINTS", "")
    return constraint.asked(text, policy.features, policy.prefix)


def prolog(policy: Policy, arguments: Arguments) -> int:
    session = session_of(policy)
    job = _job()
    try:
        profile = _asked(policy)
    except BadInput as error:
        with contextlib.suppress(OSError):
            session.store.prepare()
        session.write_reason("job %s: %s" % (job.id, error))
        raise
    with programs.budget(arguments.seconds):
        session.begin_job(job, profile)
    return 0


def epilog(policy: Policy, arguments: Arguments) -> int:
    try:
        asked = _asked(policy) not in (None, "default")
    except BadInput:
        asked = False  # its Prolog refused it
    with programs.budget(arguments.seconds):
        session_of(policy).end_job(_job(), asked)
    return 0


def recover(policy: Policy, arguments: Arguments) -> int:
    session = session_of(policy)
    with programs.budget(arguments.seconds):
        sentence = session.recover(LOCK_S)
    with session.store.lock(LOCK_S):
        _set_reason_aside(session.store)
    say(sentence)
    return 0


def _set_reason_aside(store: Store) -> None:
    """Rename the reason file: Slurm has the reason, or it no longer holds."""
    try:
        os.rename(store.path("reason"), store.path("reason.old"))
    except OSError:
        pass


def health(policy: Policy, _: Arguments) -> int:
    """Slurm's HealthCheckProgram: recover, and drain the node with the reason if there is one."""
    session = session_of(policy)
    if policy.hostname not in policy.data["nodes"] and not session.store.has_journal():
        return 0  # installed, but no interface under test
    code, trouble = 0, ""
    try:
        with programs.budget(HEALTH_S):
            session.recover(0.0)
    except Busy:
        # A Prolog or Epilog is at work; or one has ended, and its ethtool hangs in the kernel.
        reason = session.store.reason()
        if reason:
            drain(policy, reason)
        return 0
    except (NicError, OSError) as error:
        code, trouble = getattr(error, "code", Unrestored.code), str(error)
    try:
        # Held until Slurm has the reason: what `recover` has settled meanwhile must not come back
        # after the operator has resumed the node.
        with session.store.lock(0.0):
            no_room = session.store.reserve_space()
            reason = "; ".join(filter(None, [session.store.reason() or trouble, no_room]))
            if reason and drain(policy, reason) and code == 0 and not no_room:
                _set_reason_aside(session.store)
    except Busy:
        # A program that hangs keeps the lock, also after it was killed.
        if trouble:
            drain(policy, trouble)
    except OSError as error:
        # A disk that cannot be written is a reason by itself.
        drain(policy, trouble or "the state folder: %s" % error)
    else:
        with contextlib.suppress(OSError):  # evidence only: never a reason to drain
            neighbours.record(session.store)
    return code


def drain(policy: Policy, reason: str) -> bool:
    """Have Slurm drain this node and say why. Never from Prolog or Epilog: no Slurm there.

    A reason that somebody else gave stays. False: Slurm did not answer; the next health check tries
    again.
    """
    scontrol = policy.data.get("scontrol", "scontrol")
    name = "nodename=" + policy.hostname
    words = [scontrol, "--oneliner", "show", "node", policy.hostname]
    answer = programs.run(words, timeout=SCONTROL_S)
    if answer.code:
        log("the node cannot be drained: %s" % answer.err.strip())
        return False
    shown = answer.out
    present = shown.partition(" Reason=")[2]
    present = programs.one_line(present.rpartition(" [")[0] or present)  # [who gave it@when]
    reason = programs.one_line(reason, MOST_REASON)
    words = [name, "state=drain"]
    ours = present.startswith(("Prolog error", "Epilog error", "seatrial:", "Not responding"))
    if not present or ours:
        words.append("reason=seatrial: " + reason)
    elif "DRAIN" in shown.partition(" State=")[2].partition(" ")[0]:
        return True
    else:
        words.append("reason=%s; seatrial: %s" % (present, reason))
    answer = programs.run([scontrol, "update", *words], timeout=SCONTROL_S)
    if answer.code:
        log("the node cannot be drained: %s" % answer.err.strip())
    return answer.code == 0


# -- for people


def _chosen(policy: Policy, arguments: Arguments) -> List[str]:
    return arguments.interfaces or policy.interfaces


def _profile(policy: Policy, arguments: Arguments) -> Dict[str, Any]:
    if not arguments.profile:
        raise BadInput("%s needs --profile; known: %s"
                       % (arguments.verb, ", ".join(sorted(policy.profiles))))  # fmt: skip
    profile = dict(policy.profile(arguments.profile))
    if arguments.interfaces:
        of_profile = profile.get("interfaces", {})
        for name in arguments.interfaces:
            if name in policy.interfaces and not of_profile.get(name):
                raise BadInput("NIC profile %s sets nothing on %s" % (arguments.profile, name))
        profile["interfaces"] = {name: of_profile.get(name, {}) for name in arguments.interfaces}
    return profile


def show_state(policy: Policy, arguments: Arguments) -> int:
    nic = Nic()
    states = {name: nic.read(name) for name in _chosen(policy, arguments)}
    if not states:
        raise BadInput("no interface of %s is under test: --interface names one" % policy.hostname)
    node = nic.read_node()
    journal = _in_force(policy)
    owner = {key: journal[key] for key in ("profile", "job", "phase")} if journal else None
    if "json" in arguments.flags:
        print(json.dumps({"node": policy.hostname, "in_force": owner, "interfaces": states,
                          "node_settings": node}, indent=1, sort_keys=True))  # fmt: skip
        return 0
    say("node %s, NIC profile in force: %s" % (
        policy.hostname,
        "%s, for %s" % (owner["profile"], owner_of(owner)) if owner else "none"))  # fmt: skip
    fixed = {name: nic.fixed(name) for name in states}
    say(show.state_table(states, fixed, "all" in arguments.flags))
    say(show.columns([[key, values.shown(node[key])] for key in sorted(node)]))
    return 0


def _in_force(policy: Policy) -> Optional[Dict[str, Any]]:
    """The journal, but for one of an earlier boot: a boot resets the interfaces."""
    journal = _journal(policy)
    return journal if journal and journal["boot_id"] == boot_id() else None


def _journal(policy: Policy) -> Optional[Dict[str, Any]]:
    try:
        return Store(policy.folder).journal()
    except Damaged:
        raise Unrestored("the journal in %s is damaged: seatrial-nic recover" % policy.folder)


def show_diff(policy: Policy, arguments: Arguments) -> int:
    profile = _profile(policy, arguments)
    nic = Nic()
    differences = {}
    skipped = {}
    for interface, settings in sorted(profile["interfaces"].items()):
        state = nic.read(interface)
        plain = {k: v for k, v in settings.items() if k not in ("driver", "bond")}
        dropped, _ = lacking(nic, interface, plain, state, profile.get("if_supported", []))
        for key in dropped:
            plain.pop(key)
        if dropped:
            skipped[interface] = dropped
        target = values.spread(plain, state, nic.cpus())
        differences[interface] = values.differences(target, state)
        if "driver" in settings:
            wanted = json.dumps(settings["driver"], sort_keys=True)
            differences[interface].append(
                values.Difference("driver", wanted, state.get("driver.module"))
            )
        if "bond" in settings and state.get("master") != settings["bond"]["name"]:
            name = settings["bond"]["name"]
            differences[interface].append(values.Difference("bond", name, state.get("master")))
    differences["node"] = values.differences(profile.get("node", {}), nic.read_node())
    different = any(differences.values())
    if "json" in arguments.flags:
        as_dicts = {
            name: [difference._asdict() for difference in ones]
            for name, ones in differences.items()
        }  # type: Dict[str, Any]
        if skipped:
            as_dicts["skipped"] = skipped
        print(json.dumps(as_dicts, indent=1, sort_keys=True))
    else:
        _say_skipped(skipped)
        same = "%s: nothing differs" % arguments.profile
        if arguments.profile == "default":
            same = "default sets nothing: verify compares with the state at boot"
        say(show.difference_table(differences) if different else same)
    return 1 if different else 0


def apply_by_hand(policy: Policy, arguments: Arguments) -> int:
    profile = _profile(policy, arguments)
    session = session_of(policy)
    journal = _in_force(policy)
    if journal and journal["job"] == BY_HAND:
        raise Refused(
            "NIC profile %s is in force for %s: first %s"
            % (journal["profile"], owner_of(journal), arguments.restore_command)
        )
    if "dry-run" in arguments.flags:
        if journal:  # what the node has is not its own state
            lives = session.owner_lives(journal)
            raise Refused(
                "NIC profile %s %s for %s%s"
                % (
                    journal["profile"],
                    "is in force" if lives else "was left over",
                    owner_of(journal),
                    "" if lives else ": first seatrial-nic recover",
                )
            )
        return _dry_run(policy, arguments, profile)
    if arguments.profile == "default":
        raise BadInput("default is the state at boot: restore undoes a profile")
    running = session.world.any_steps()
    if running:
        raise Refused("job %s runs on this node" % running)
    job = Job(BY_HAND, "0", str(os.getuid()))
    session.begin_job(job, arguments.profile, profile)
    _say_skipped((_in_force(policy) or {}).get("skipped", {}))
    say("NIC profile %s is in force until: %s" % (arguments.profile, arguments.restore_command))
    say(
        "Drain the node first: while the profile is in force, the Prolog refuses jobs and Slurm "
        "drains the node."
    )
    return 0


def _say_skipped(skipped: Dict[str, List[str]]) -> None:
    for interface, keys in sorted(skipped.items()):
        for key in keys:
            say("# %s has no %s: left out, as the profile allows" % (interface, key))


def _dry_run(policy: Policy, arguments: Arguments, profile: Dict[str, Any]) -> int:
    """Print the commands in the order in which they would be run. Needs no rights."""
    nic = DryRun(say)
    session = session_of(policy, nic)
    journal = session.prepare(profile)
    _say_skipped(journal["skipped"])
    actions = session.work.plan(journal)
    for action in actions:
        nic.perform(action)
    if not actions:
        say("# nothing to do: %s is as this node is" % arguments.profile)
    return 0


def verify(policy: Policy, arguments: Arguments) -> int:
    journal = _in_force(policy)
    name = arguments.profile or (journal["profile"] if journal else "default")
    profile = policy.profile(name)
    interfaces = profile.get("interfaces", {})
    where = ""
    skipped = {}  # type: Dict[str, List[str]]
    if journal and journal["profile"] == name:
        skipped = journal.get("skipped", {})
        # As it was applied, also if the policy was edited since.
        applied = {one: part["wanted"] for one, part in journal["interfaces"].items()}
        if arguments.profile or arguments.interfaces:
            applied = dict(interfaces, **applied)
        elif set(interfaces) - set(applied):
            where = ", on %s: it was applied there only" % ", ".join(sorted(applied))
        interfaces = applied
    declared = {
        "profile": name,
        "state_folder": policy.folder,
        "node": profile.get("node", {}),
        "nodes": {policy.hostname: interfaces},
        "if_supported": profile.get("if_supported", []),
        "tests": {policy.hostname: _chosen(policy, arguments)},
    }
    evidence = collect(declared, policy.hostname)
    if "json" in arguments.flags:
        print(json.dumps(evidence, indent=1, sort_keys=True))
    else:
        left_out = {n: one.get("left_out", []) for n, one in evidence["interfaces"].items()}
        _say_skipped(dict(left_out, **skipped))
        found = "as the profile has it" + where if evidence["ok"] else evidence["reason"]
        say("NIC profile %s: %s" % (name, found))
    return 0 if evidence["ok"] else 1


def restore(policy: Policy, arguments: Arguments) -> int:
    session = session_of(policy)
    journal = _journal(policy)
    if journal is None:
        say("no NIC profile is in force")
        return 0
    if "dry-run" in arguments.flags:
        return _dry_restore(session, journal)
    by_hand = journal["job"] == BY_HAND
    if not by_hand and "force" not in arguments.flags and session.owner_lives(journal):
        raise Refused("NIC profile %s belongs to job %s, which runs: its Epilog undoes it"
                      % (journal["profile"], journal["job"]))  # fmt: skip
    say(session.recover(LOCK_S, force=True))
    with session.store.lock(LOCK_S):
        _set_reason_aside(session.store)
    return 0


def _dry_restore(session: Session, journal: Dict[str, Any]) -> int:
    for action in session.work.undo_drivers_and_bonds(journal):
        say(text_of(action))
    for interface, part in sorted(journal["interfaces"].items()):
        for action in changes.to_restore(interface, part["before"], session.nic.read(interface)):
            say(text_of(action))
    for action in mtus.restore_mtus(users_in(journal["interfaces"])):
        say(text_of(action))
    for record in ipv6_in(journal["interfaces"]):
        for _, action in mtus.different_ipv6(record):
            say(text_of(action))
    for action in changes.of_node(journal["node"]["before"], session.nic.read_node()):
        say(text_of(action))
    return 0


def accept(policy: Policy, _: Arguments) -> int:
    session = session_of(policy)
    with session.store.lock(LOCK_S):
        try:
            if session.store.journal():
                raise Refused("a NIC profile is in force: what it set is not the node's own state")
        except Damaged:
            session.store.set_aside()
        session.accept()
        _set_reason_aside(session.store)
    say("the present state is recorded as the node's own")
    return 0


ACTS = {
    "show": show_state, "diff": show_diff, "apply": apply_by_hand, "verify": verify,
    "restore": restore, "recover": recover, "accept": accept,
    "prolog": prolog, "epilog": epilog, "health": health,
}  # fmt: skip
#: what would be done to the wrong folder, or with no interface, under a wrong name
NEEDS_NAME = ("apply", "restore", "recover", "accept")
NEEDS_ROOT = ("apply", "restore", "recover", "accept", "prolog", "epilog", "health")


def main(words: List[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    arguments, policy = None, None
    try:
        arguments = Arguments(words)
        if arguments.verb in NEEDS_ROOT and "dry-run" not in arguments.flags and os.geteuid():
            raise Refused("%s must be run by root" % arguments.verb)
        policy = Policy.load(arguments.policy)
        if arguments.verb in NEEDS_NAME and policy.hostname not in policy.data["nodes"]:
            raise BadInput(
                "%s: node %s is not in it: is SLURMD_NODENAME what slurm.conf calls this node?"
                % (policy.file, policy.hostname)
            )
        if arguments.interfaces and arguments.verb in NEEDS_NAME and arguments.verb != "apply":
            raise BadInput("%s is for all interfaces: no --interface" % arguments.verb)
        return ACTS[arguments.verb](policy, arguments)
    except NicError as error:
        log(str(error))
        if arguments is None:
            sys.stderr.write(USAGE + "\n")
        return error.code
    except Exception as error:
        # Also a fault of this program must not end without a word for the operator.
        log("%s: %s" % (type(error).__name__, error))
        if policy is not None and arguments is not None and arguments.verb in NEEDS_ROOT:
            with contextlib.suppress(OSError):
                Store(policy.folder).write_reason("%s: %s" % (type(error).__name__, error))
        return Unrestored.code

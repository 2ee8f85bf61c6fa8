"""Running the node's own programs, by absolute path: Slurm gives a Prolog no PATH."""

import contextlib
import os
import subprocess
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
# Longer than any driver needs for a ring change that takes the link down; far shorter than
# PrologEpilogTimeout.
TIMEOUT_S = 15.0
KILLED_S = 2.0
#: characters of a line that is logged, printed or given as a reason
MOST_TEXT = 4000
ENVIRONMENT = {"LC_ALL": "C", "PATH": ":".join(FOLDERS)}

Answer = NamedTuple("Answer", [("code", int), ("out", str), ("err", str)])

#: a command that others wait for: when it must have ended (monotonic clock), and how long it has
Deadline = NamedTuple("Deadline", [("end", float), ("seconds", float)])
_deadline: Optional[Deadline] = None

# Descriptors that programs inherit: the node's lock, so that it stays taken until a program
# has ended that was left behind by a killed Prolog.
inherited: List[int] = []


def find(name: str) -> str:
    """Absolute path of a program, or the bare name where no folder has it."""
    for folder in FOLDERS:
        path = folder + "/" + name
        if os.access(path, os.X_OK):
            return path
    return name


def environment() -> Dict[str, str]:
    """Nothing of the caller's but where Slurm's configuration is, which slurmd itself says."""
    variables = dict(ENVIRONMENT)
    if "SLURM_CONF" in os.environ:
        variables["SLURM_CONF"] = os.environ["SLURM_CONF"]
    return variables


@contextlib.contextmanager
def budget(seconds: Optional[float]) -> Iterator[None]:
    """All programs that are run meanwhile have so many seconds together. Then none is started.
    None: there is no limit."""
    global _deadline
    outer = _deadline
    _deadline = Deadline(time.monotonic() + seconds, seconds) if seconds else None
    try:
        yield
    finally:
        _deadline = outer


@contextlib.contextmanager
def keeping(part: float) -> Iterator[None]:
    """Leave a part of the budget (0 to 1) to what comes after. No effect where there is none."""
    global _deadline
    outer = _deadline
    if outer is not None:
        _deadline = outer._replace(end=outer.end - part * outer.seconds)
    try:
        yield
    finally:
        _deadline = outer


def seconds_left() -> float:
    return _deadline.end - time.monotonic() if _deadline is not None else float("inf")


def used_up() -> str:
    """A sentence on a budget that is used up; empty where it is not, or where there is none."""
    if _deadline is None or seconds_left() > 0:
        return ""
    return "the %g s of this command are used up: a driver or a program is slow" % _deadline.seconds


def run(argv: Sequence[str], timeout: float = TIMEOUT_S) -> Answer:
    """Run a program to its end. A missing program is code 127, one that hangs is code 124; so is
    one that does not end within the budget, or is not started because nothing is left of it."""
    if used_up():
        return Answer(124, "", used_up())
    timeout = min(timeout, seconds_left())
    command = [find(argv[0]), *argv[1:]]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            env=environment(),
            pass_fds=tuple(inherited),
        )
    except OSError as error:
        return Answer(127, "", "%s: %s" % (argv[0], error.strerror))
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            # What it started may keep its output open, and a driver that hangs cannot be killed.
            process.communicate(timeout=KILLED_S)
        except subprocess.TimeoutExpired:
            pass
        why = used_up()
        text = "%s did not end within %.3g s" % (argv[0], timeout)
        return Answer(124, "", "%s; %s" % (text, why) if why else text)
    return Answer(process.returncode, out, err)


def read_text(path: str) -> Tuple[bool, str]:
    """(whether it could be read, text without the last newline)."""
    try:
        # Not every carriage return is the end of a line: users put them into names and sources.
        with open(path, errors="replace", newline="\n") as stream:
            return True, stream.read().rstrip("\n")
    except OSError:
        return False, ""


def real_uid(folder: str) -> str:
    """Real user id of the process that has this folder in /proc; empty where it has ended.

    Of the process's name, which its user chooses, the kernel escapes newlines only.
    """
    try:
        with open(folder + "/status", "rb") as stream:
            lines = stream.read().split(b"\n")
    except OSError:
        return ""
    uids = [line.split()[1:2] for line in lines if line.startswith(b"Uid:")]
    return uids[0][0].decode("ascii", "replace") if uids and uids[0] else ""


def mounts(text: str) -> List[Tuple[str, str, str, str, str]]:
    """Root in its file system, folder, kind, source and options of each line of ``mountinfo``.

    The kernel escapes blanks and newlines of ASCII in them; what else Python takes for a blank or
    for the end of a line is part of a source that any user may choose for a mount of FUSE.
    """
    found = []
    for line in text.split("\n"):
        head, _, tail = line.partition(" - ")
        words, more = head.split(" "), tail.split(" ")
        if len(words) > 5 and len(more) == 3:
            found.append((words[3], words[4], more[0], more[1], more[2]))
    return found


def plain(text: str, most: int = MOST_TEXT) -> str:
    """Text of which others chose the characters, such as a switch or any user, for a terminal.

    It has at most so many characters, and none that moves the cursor or changes the direction."""
    return "".join(character if character.isprintable() else "?" for character in text[:most])


def one_line(text: str, most: int = MOST_TEXT) -> str:
    """Such text as a line of a log or Slurm's reason, in ASCII: slurmd gives its locale to none."""
    words = " ".join(text[: 2 * MOST_TEXT].split())
    return plain(words, most).encode("ascii", "replace").decode("ascii")

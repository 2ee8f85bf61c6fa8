"""Errors of the node side, each with the exit code of the command."""


class NicError(Exception):
    """Base of all. ``code`` is the exit code; from Prolog and Epilog each drains the node."""

    code = 2


class Refused(NicError):
    """Nothing was changed, or all is restored: the guard, another owner or a driver refused."""

    code = 2


class Late(Refused):
    """The job has ended, or slurmd has died: nothing was changed, and no reason is written.

    If slurmd lives, it still drains the node with its own words, "Prolog error".
    """


class BadInput(NicError):
    """The policy, the constraint or the command line is wrong; nothing was changed."""

    code = 3


class Unrestored(NicError):
    """The state could not be restored or verified: the node must not stay in service."""

    code = 4


class SettingRefused(NicError):
    """A driver or the kernel refused a setting. ``setting`` names it."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__("%s: %s" % (setting, why))
        self.setting = setting
        self.why = why

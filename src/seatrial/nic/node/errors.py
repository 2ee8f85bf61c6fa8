"""Why something was not done, and with which exit code the command then ends."""


class NicError(Exception):
    """Base of all. ``code`` is the exit code; from Prolog and Epilog each drains the node."""

    code = 2


class Refused(NicError):
    """Nothing was changed, or all was put back: a guard, another owner, a setting refused."""

    code = 2


class Late(Refused):
    """Nobody waits for this command any more; it has left nothing, and no operator need know."""


class BadInput(NicError):
    """The policy, the constraint or the command line is wrong; nothing was changed."""

    code = 3


class Unrestored(NicError):
    """A node's state could not be put back, or not be verified: it must not stay in service."""

    code = 4


class SettingRefused(NicError):
    """A driver or the kernel refused a setting. ``setting`` names it."""

    def __init__(self, setting: str, why: str) -> None:
        super().__init__("%s: %s" % (setting, why))
        self.setting = setting
        self.why = why

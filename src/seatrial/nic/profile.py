"""The model of a NIC profile, in a site file and in the file of ready profiles.

``seatrial.nic.inheritance`` has what a profile inherits from its base,
``seatrial.site.validate_profiles`` what must agree with the rest of the site file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from seatrial.base.fields import Model, Name, at_least, text_of
from seatrial.base.yamlfile import InvalidValue
from seatrial.nic.node.settings import BY_NAME, SETTINGS
from seatrial.nic.schema import ProfileSettings, Settings

FEATURE_PREFIX = "nic_"
#: how the name of a ready profile is written where a site's profile has it as its base
READY = "ready:"
Suits = Literal["communication-bound", "compute-bound", "latency-bound"]
DataPath = Literal["kernel", "verbs", "libfabric"]
if TYPE_CHECKING:
    MayLack = str
else:
    #: settings that a NIC may lack; every interface has the others
    MayLack = Literal[
        tuple(dict.fromkeys(setting.optional for setting in SETTINGS if setting.optional))
    ]


Feature = Annotated[
    str, *text_of(r"nic_[A-Za-z0-9_.=]+", "a feature of a profile",
                   "nic_, then letters, digits, _ . and = only: Slurm takes no others")
]  # fmt: skip
Base = Annotated[
    str, *text_of(r"(ready:)?[a-z][a-z0-9_-]*", "a profile's name",
                   "write for example ready:low-latency")
]  # fmt: skip


def default_feature(name: str) -> str:
    """The Slurm node feature of a profile that names none: letters, digits and ``_`` only."""
    return FEATURE_PREFIX + name.replace("-", "_")


class NicProfile(ProfileSettings):
    """A named set of NIC settings; ``default`` is the node as it boots."""

    description: str = Field(default="", description="of the base, where none is given")
    feature: Feature | None = Field(
        default=None,
        description="Slurm node feature by which a job asks for it; else nic_<name>",
        examples=["nic_low_latency"],
    )
    base: Base | None = Field(
        default=None,
        description="profile whose settings it begins with: of this site, or ready:<name>",
        examples=["ready:low-latency"],
    )
    networks: Annotated[list[Name], *at_least(1, "leave it out for all")] | None = Field(
        default=None, description="networks of role test that it sets; else all of them"
    )
    node_classes: Annotated[list[Name], *at_least(1, "leave it out for all")] | None = Field(
        default=None, description="classes of nodes that it fits; else all"
    )
    transports: Annotated[list[str], *at_least(1, "leave it out for all")] | None = Field(
        default=None, description="glob patterns: transports that a trial tries it under; else all"
    )
    source: str = Field(default="", description="where its values come from")
    suits: list[Suits] | None = Field(default=None, description="applications it is for")
    if_supported: list[MayLack] | None = Field(
        default=None, description="settings to leave out on a NIC that lacks them"
    )
    ignored_by: dict[Literal["verbs", "libfabric"], str] | None = Field(
        default=None, description="data path: a sentence on what it does there"
    )
    per_network: dict[Name, Settings] | None = Field(
        default=None, description="settings of the interface of one network only"
    )

    @model_validator(mode="after")
    def _described(self) -> NicProfile:
        if not self.description and not self.base:
            raise InvalidValue(
                "required, but not given", "say in a line what it is for", "description"
            )
        return self

    @property
    def has_settings(self) -> bool:
        """Whether it gives any setting by itself, a null included."""
        parts = [self, *(self.per_network or {}).values()]
        return any(part.model_fields_set & set(BY_NAME) for part in parts)


class ReadyProfiles(Model):
    """The file of profiles that come with Seatrial. Their bases are one another."""

    schema_version: Literal[1] = Field(alias="schema")
    profiles: dict[Name, NicProfile]

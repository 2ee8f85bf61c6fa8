"""ReFrame's configuration of this site: reframe -C site-configs/lab/settings.py ..."""

from pathlib import Path

from seatrial.checks.configuration import settings

site_configuration = settings(Path(__file__).with_name("site.yaml"))

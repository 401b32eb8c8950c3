"""The device side: turns step plans into compiled calls and reads the results.

The only folder of jengine that imports `models`. `runner.ModelRunner` dispatches
a plan and collects its result; everything else here is a pure function, except
`mirror.SeatMirror`, a fold over the stream of plans, and `programs.ProgramStore`,
a cache of compiled programs.
"""

import models

if getattr(models, "OWNER", None) != "jengine":
    raise ImportError(
        f"jengine needs its own package `models`, but Python found {models.__file__} "
        "first. Rename that folder, or start Python with -P (or PYTHONSAFEPATH=1) so "
        "that the working folder is not searched before installed packages."
    )

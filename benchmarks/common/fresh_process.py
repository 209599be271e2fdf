"""What a saved engine takes to be loaded in a fresh Python process, and what the model takes to be planned again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from convwright.engine.engine import Engine
from convwright.settings import Mode

CHILD = """
import json, sys
from time import perf_counter

given = json.loads(sys.argv[1])
begun_s = perf_counter()
import torch
import convwright as cw
load, optimize = cw.load, cw.optimize
imported_s = perf_counter() - begun_s

torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = given["tf32"]
torch.zeros(1, device=given["device"])  # the start of CUDA is no part of either
if "model" in given:
    model, x = torch.load(given["model"], weights_only=False)
begun_s = perf_counter()
if "model" in given:
    optimize(model, x, mode=given["mode"], store=given["store"])
else:
    load(given["engine"], given["device"])
if given["device"] != "cpu":
    torch.cuda.synchronize(given["device"])
print(json.dumps([imported_s, perf_counter() - begun_s]))
"""


def fresh_process_s(
    engine: Engine, model: nn.Module, x: Tensor, folder: Path, *, device: str, mode: Mode, store: Path, tf32: bool
) -> dict[str, float]:
    """Seconds, each in a process of its own. "loaded_cold_s" has empty caches of kernels and findings; "loaded_warm_s"
    and "rebuilt_s" have what the engine left there. "imported_s" is what PyTorch and convwright take to be imported."""
    engine.save(folder / "engine")
    torch.save((model, x), folder / "model.pt")
    of_all = {"device": device, "tf32": tf32}
    saved, planned = of_all | {"engine": f"{folder}/engine"}, of_all | {"model": f"{folder}/model.pt", "mode": mode}
    (cold := folder / "cold").mkdir()
    empty = {
        "TRITON_CACHE_DIR": f"{cold}/triton", "XDG_CACHE_HOME": str(cold), "CONVWRIGHT_STORE": f"{cold}/store.sqlite"
    }  # fmt: skip
    _, rebuilt_s = _seconds(planned | {"store": str(store)})
    _, cold_s = _seconds(saved, **empty)
    imported_s, warm_s = _seconds(saved)
    return {"imported_s": imported_s, "loaded_warm_s": warm_s, "loaded_cold_s": cold_s, "rebuilt_s": rebuilt_s}


def _seconds(given: dict[str, Any], **variables: str) -> tuple[float, float]:
    """What the imports and the call take."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as those of an installed package
    command = [sys.executable, "-c", CHILD, json.dumps(given)]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    imported_s, call_s = json.loads(printed.splitlines()[-1])
    return imported_s, call_s

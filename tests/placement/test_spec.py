"""What a file says becomes arguments of ``place``, and what is wrong in it is said with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from convwright.errors import BadInput
from convwright.placement import place, read_spec
from convwright.placement.spec import parse_spec

GOOD = """
[[job]]
name = "night run"
key = "resnet50"
batches = [1, 8]
images = 1000
source = "host"
bytes_in = 150528

[[job]]
name = "camera"
key = "unet"
batches = 1
rate_per_s = 30.0

[[device]]
name = "gpu"
count = 2
memory_bytes = 80_000_000_000
[device.links]
host = 25e9

[[estimate]]
key = "resnet50"
device = "gpu"
batch = 8
time_us = {value = 2000.0, low = 1900.0, high = 2100.0}
memory_bytes = 500_000_000

[[estimate]]
key = "unet"
device = "gpu"
batch = 1
time_us = 4000
memory_bytes = 500_000_000
"""


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(GOOD)
    spec = read_spec(path)
    assert [job.batches for job in spec.jobs] == [(1, 8), (1,)]
    assert spec.devices[0].links == (("host", 25e9),)
    assert place(spec.jobs, spec.devices, spec.estimates).makespan_s == pytest.approx(0.25 + 1000 * 150528 / 25e9)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "images = 1000",
            "images = -1",
            ", line 6: `images` of job 'night run' must be a whole number",
        ),
        ("rate_per_s = 30.0", "rate = 30.0", ", line 14: a job has no 'rate'; it has name, key, batches, images,"),
        ('key = "unet"\nbatches', "batches", ", line 10: job 2 has no 'key'"),
        (
            "host = 25e9",
            "host = 0",
            ", line 20: the link of device 'gpu' to 'host' takes a finite number above 0",
        ),
        (
            "time_us = 4000",
            "time_us = 'long'",
            ", line 34: time_us must be a number, or a table of value, low",
        ),
        (
            "low = 1900.0",
            "low = 2500.0",
            ", line 27: time_us: `low` must be at most `high`, got 2500.0 and 2100.0",
        ),
        (
            "low = 1900.0",
            "low = 2050.0",
            ", line 27: `time_us` of the estimate of 'resnet50' on device 'gpu'",
        ),
        (
            "high = 2100.0",
            "high = inf",
            ", line 27: `time_us` of the estimate of 'resnet50' on device 'gpu' must have 0 < low <= value <= high, "
            "all of them finite, got 2000 (1900 to inf)",
        ),
        (
            "rate_per_s = 30.0",
            "rate_per_s = 1e-300",
            ", line 14: `rate_per_s` of job 'camera' is less than one image in 30 years",
        ),
        (
            'name = "camera"',
            'name = "\\u001b[2J"',
            ", line 11: `name` of a job must be a text without control characters, got '\\x1b[2J'",
        ),
        (
            "[[device]]",
            "[[machine]]",
            ", line 16: 'machine' is not known; the tables are [[job]], [[device]], [[model]] and [[estimate]]",
        ),
        ('name = "camera"', "name = 3", ", line 11: `name` of a job must be a text that is not empty, got 3"),
        (
            'key = "unet"\nbatches',
            "key = 3\nbatches",
            ", line 12: `key` of job 'camera' must be a text that is not empty",
        ),
        ('name = "gpu"', 'name = ""', ", line 17: `name` of a device must be a text that is not empty, got ''"),
        ("images = 1000", "images = ", " is not TOML: Invalid value (at line 6, column 10)"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, sentence: str) -> None:
    text = (
        GOOD.replace(old, new).replace("[device.links]\nhost = 25e9", "")
        if "machine" in new
        else GOOD.replace(old, new)
    )
    with pytest.raises(BadInput, match=f"^fleet.toml{re.escape(sentence)}"):
        parse_spec(text, "fleet.toml")


def test_a_key_has_one_model() -> None:
    model = '[[model]]\nkey = "unet"\ntarget = "a.py:b"\n'
    with pytest.raises(BadInput, match=r"^fleet.toml, line 5: another model has the key 'unet', too"):
        parse_spec(model + model, "fleet.toml")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('dtype = "fp17"', "`dtype` of a model must be one of fp64, fp32, fp16"),
        ('dtype = "int8"', "`dtype` of a model must be fp16, bf16, fp32 or fp64, got 'int8'"),
        ('precision = "8"', "`precision` of a model must be one of fp16, bf16, tf32, mixed, got '8'"),
    ],
)
def test_types_that_no_model_has(given: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^fleet.toml, line 4: {re.escape(sentence)}"):
        parse_spec(f'[[model]]\nkey = "unet"\ntarget = "a.py:b"\n{given}', "fleet.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('\njob = [{name = "a", key = "k", batches = [1]}]', ", line 2: job 'a' needs either `images` or `rate_per_s`"),
        ("device = 3", ", line 1: device must be tables, each under [[device]]"),
        ('[["device"]]', ", table device 1: device 1 has no 'name'"),  # a heading that hardly anybody writes
    ],
)
def test_tables_without_a_heading_of_their_own(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=f"^fleet.toml{re.escape(sentence)}"):
        parse_spec(text, "fleet.toml")


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text(GOOD, encoding="utf-8-sig")
    assert read_spec(tmp_path / "fleet.toml") == parse_spec(GOOD)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.toml cannot be read: No such file or directory$"):
        read_spec(tmp_path / "none.toml")

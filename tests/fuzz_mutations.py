"""Damage for files: what a bad disk, a bad copy and a bad person do to them. Everything is a function of the generator
that is handed in."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors import safe_open

from graphstrap.run.folder import save_tensors

TEXT_ENDINGS = (".csv", ".json", ".jsonl", ".toml", ".txt")
TOKEN = re.compile(rb'"[^"\n]{0,40}"|-?\d+(\.\d+)?|true|false|null|[A-Za-z_]{2,20}')
EVIL_WORDS = (
    *(b"", b"-1", b"0", b"1", b"2147483647", b"2147483648", b"-2147483649", b"4294967296", b"9223372036854775807"),
    *(b"9223372036854775808", b"1e400", b"-1e308", b"1e-320", b"NaN", b"nan", b"Infinity", b"-inf", b"null", b"true"),
    *(
        b'"',
        b"'",
        b"\x00",
        b"\xff\xfe",
        "é".encode(),
        b"\r",
        b"\n\n",
        b",,,",
        b";",
        b"#",
        b"[]",
        b"{}",
        b'"x"',
        b"[[[]]]",
    ),
    *(b'"../../../etc/passwd"', b"/etc/passwd", b'"/dev/zero"', b"'); DROP TABLE edges; --", b"9" * 400, b"[" * 3000),
    *(b"x" * 5000, b"1" + b"0" * 5000, b"=cmd()", b"{" * 50, b"0x10", b"1_000", b" ", b"\t", b'"\\ud800"'),
)
EVIL_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        3,
        2**31 - 1,
        2**31,
        2**32,
        2**53 + 1,
        2**63 - 1,
        2**63,
        2**70,
        10**400,
        -(2**31) - 1,
    ),
    *(0.5, -0.5, 1e308, math.nan, math.inf, -math.inf, "", "x", "0", "nan", "../../../etc/passwd", "/dev/zero", "\x00"),
    *(
        "\ud800",
        "é" * 50,
        "x" * 5000,
        [],
        {},
        [None],
        [[]],
        [0, 1],
        [1, 0],
        ["a", 1],
        {"a": 1},
        [[0, 1], [2]],
        [2**40] * 3,
    ),
    *([math.nan], [[[[[[]]]]]], {"": ""}, list(range(100))),
)
EVIL_DTYPES = (
    "<i8",
    "<i4",
    "|i1",
    "|u1",
    "<u8",
    "<f4",
    "<f8",
    "<f2",
    "|b1",
    "<U3",
    "<c8",
    "|S4",
    "<M8[s]",
    ">i4",
    "|V8",
)
SIZES = (1, 3, 4, 1000, 1024, 4096, 60_000, 65_536)
HEADERS = (
    "2147483648",
    "9223372036854775807",
    "1125899906842624",
    "-1",
    "4294967296, 4294967296",
    "0",
    "1",
    "",
    "3, -3",
)


def mutate(folder: Path, random: Random) -> None:
    """Damage a folder of files, once or a few times."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        if not files:
            return
        path = random.choice(files)
        random.choice(_ways(path))(path, random)


def _ways(path: Path) -> tuple[Callable[[Path, Random], None], ...]:
    """Structured damage gets past checks that noise does not, so that it has the larger part."""
    ways: list[Callable[[Path, Random], None]] = [_damage_bytes, _damage_bytes, _damage_place]
    if path.suffix in TEXT_ENDINGS:
        ways += [_damage_words] * 3
    structured = {".json": _damage_json, ".jsonl": _damage_lines, ".npz": _damage_npz, ".npy": _damage_npy}
    if path.suffix in structured:
        ways += [structured[path.suffix]] * 5
    if path.suffix == ".gz":
        ways += [_damage_packed] * 3
    if path.suffix == ".safetensors":
        ways += [_damage_tensors] * 5
    return tuple(ways)


# ---- bytes -----------------------------------------------------------------------------------------------------------


def _damage_bytes(path: Path, random: Random) -> None:
    data = bytearray(path.read_bytes())
    size = len(data)
    begin, length = random.randrange(size + 1), random.choice((1, 2, 4, 8, 64, 512))
    way = random.randrange(8)
    if way == 0:
        data = data[:begin]
    elif way == 1:
        for _ in range(random.choice((1, 1, 2, 8, 64))):
            if size:
                data[random.randrange(size)] ^= 1 << random.randrange(8)
    elif way == 2:
        data[begin : begin + length] = random.randbytes(length)
    elif way == 3:
        data[begin : begin + length] = b"\x00" * length
    elif way == 4:
        del data[begin : begin + length]
    elif way == 5:
        data[begin:begin] = data[begin : begin + length] * random.choice((1, 2, 100))
    elif way == 6:
        data[begin : begin + 8] = random.choice((2**31, 2**63 - 1, 2**64 - 1, 2**40)).to_bytes(8, "little")
    else:
        middle = random.randrange(size + 1)
        data = data[middle:] + data[:middle]
    path.write_bytes(data)


def _damage_words(path: Path, random: Random) -> None:
    data = path.read_bytes()
    tokens = list(TOKEN.finditer(data))
    for _ in range(random.choice((1, 1, 2, 5))):
        if tokens:
            token = random.choice(tokens)
            data = data[: token.start()] + random.choice(EVIL_WORDS) + data[token.end() :]
    path.write_bytes(data)


def _damage_packed(path: Path, random: Random) -> None:
    """Other words in a compressed text."""
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):  # what an earlier damage left
        return
    path.write_bytes(data)
    _damage_words(path, random)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


# ---- places ----------------------------------------------------------------------------------------------------------


def _damage_place(path: Path, random: Random) -> None:
    """Another file, no file, a folder, a pipe, or a link that leads elsewhere."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and not other.is_symlink())
    way = random.randrange(9)
    if way <= 1:
        other = random.choice(others)
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        if way == 1:
            other.write_bytes(mine)
        return
    path.unlink()
    if way == 2:
        path.mkdir()
    elif way == 3:
        path.symlink_to("/etc/passwd")
    elif way == 4:
        path.symlink_to(path.name)
    elif way == 5:
        path.symlink_to("/dev/zero")
    elif way == 6:
        os.mkfifo(path)
    elif way == 7:
        path.touch()


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _damage_json(path: Path, random: Random) -> None:
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    path.write_text(json.dumps(_damaged(value, random)), encoding="utf-8", errors="surrogatepass")


def _damage_lines(path: Path, random: Random) -> None:
    lines = path.read_bytes().splitlines()
    if not lines:
        return
    place = random.randrange(len(lines))
    try:
        value = json.loads(lines[place])
    except (ValueError, RecursionError):
        return
    lines[place] = json.dumps(_damaged(value, random)).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")


def _damaged(value: Any, random: Random) -> Any:
    """A JSON value with one part of it, at any depth, replaced, left out or doubled."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return random.choice(EVIL_VALUES)
    if isinstance(value, dict):
        key = random.choice(sorted(value))
        way = random.randrange(6)
        if way == 0:
            return {k: v for k, v in value.items() if k != key}
        if way == 1:
            return {**value, random.choice(("", "x", "../x", "indptr", key + "2")): value[key]}
        return {**value, key: _damaged(value[key], random)}
    place = random.randrange(len(value))
    way = random.randrange(6)
    if way == 0:
        return value[:place] + value[place + 1 :]
    if way == 1:
        return [*value[:place], *value[place:], value[place]]
    return [*value[:place], _damaged(value[place], random), *value[place + 1 :]]


# ---- arrays ----------------------------------------------------------------------------------------------------------


def _damage_npz(path: Path, random: Random) -> None:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception:  # what an earlier damage left
        return
    if not arrays:  # an earlier damage left none
        return
    name = random.choice(sorted(arrays))
    way = random.randrange(5)
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[name] = arrays[random.choice(sorted(arrays))]
    elif way == 2:
        _write_zip(path, arrays, name, random)
        return
    else:
        arrays[name] = _damaged_array(arrays[name], random)
    np.savez_compressed(path, allow_pickle=True, **arrays)


def _write_zip(path: Path, arrays: dict[str, Any], name: str, random: Random) -> None:
    """One member's header claims another size."""
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=True)
            data = buffer.getvalue()
            archive.writestr(f"{key}.npy", _with_other_shape(data, random) if key == name else data)


def _damage_npy(path: Path, random: Random) -> None:
    if random.random() < 0.4:
        path.write_bytes(_with_other_shape(path.read_bytes(), random))
        return
    try:
        array = np.load(path, allow_pickle=False)
    except Exception:  # what an earlier damage left
        return
    np.save(path, _damaged_array(array, random), allow_pickle=True)


def _with_other_shape(data: bytes, random: Random) -> bytes:
    """An .npy file whose header has another shape or type, padded to the same length where that is possible."""
    end = data.find(b"\n") + 1
    if random.random() < 0.5:
        header = re.sub(rb"'shape': \([^)]*\)", f"'shape': ({random.choice(HEADERS)},)".encode(), data[10:end])
    else:
        dtype = random.choice((*EVIL_DTYPES, "|O", "<U2147483647", "x", "__import__('os')"))
        header = re.sub(rb"'descr': '[^']*'", f"'descr': {dtype!r}".encode(), data[10:end])
    header = header.rstrip()
    header = header.ljust(max(end - 11, len(header))) + b"\n"
    return data[:8] + len(header).to_bytes(2, "little") + header + data[end:]


def _damaged_array(array: Any, random: Random) -> Any:
    array = np.array(array)
    way = random.randrange(9)
    if way <= 2 and array.size and array.dtype.kind in "iufb":
        evil = [0, -1, 1, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), math.nan, math.inf, 1e308, 0.5, 200]
        wide = array.astype(np.float64 if array.dtype.kind == "f" or random.random() < 0.3 else np.int64)
        value = random.choice(evil)
        if wide.dtype.kind == "i":
            value = int(value) if math.isfinite(value) and abs(value) < 2**63 else -1
        wide.reshape(-1)[random.randrange(wide.size)] = value
        return wide
    if way == 3:
        with np.errstate(all="ignore"):
            try:
                return array.astype(random.choice(EVIL_DTYPES))
            except (ValueError, TypeError):
                return np.zeros(array.shape)
    if way == 4:
        return array[: random.randrange(len(array) + 1)] if array.ndim else array.reshape(1)
    if way == 5:
        return array.T if array.ndim > 1 else array[None]
    if way == 6:
        return np.concatenate([array, array]) if array.ndim else np.array([array, array])
    if way == 7:
        return np.array([], dtype=array.dtype)
    return np.array(random.choice((None, {"a": 1}, "text", 3.5, [1, 2, 3], [[1]])), dtype=None)


# ---- named tensors ---------------------------------------------------------------------------------------------------


def _damage_tensors(path: Path, random: Random) -> None:
    """Another content under a checksum that is right."""
    import torch

    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["graphstrap"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception:  # what an earlier damage left
        return
    name = random.choice(sorted(tensors))
    way = random.randrange(6)
    kind, info = header.get("kind"), header.get("info")
    if way == 0:
        del tensors[name]
    elif way == 1:
        tensors[random.choice(("x", name + "2", "module.x", "transform.means.7"))] = tensors[name]
    elif way == 2:
        shape = random.choice(((0,), (1,), (3, 5), (), (2, 2, 2), tuple(tensors[name].shape)))
        dtype = random.choice((torch.float16, torch.int64, torch.float64, torch.bool, torch.bfloat16, torch.uint8))
        tensors[name] = torch.zeros(shape, dtype=dtype)
    elif way == 3 and tensors[name].is_floating_point():
        tensors[name] = torch.full_like(tensors[name], random.choice((math.nan, math.inf, 1e30)))
    else:
        info = _damaged(info, random)
    save_tensors(path, tensors, kind=kind, info=info)


def change_sizes(folder: Path, random: Random) -> None:
    """Other numbers in the recipes of a run and of a model, each allowed by itself, under checksums that are right."""
    path = random.choice((folder / "run" / "recipe.toml", folder / "model.safetensors"))
    if path.suffix == ".toml":
        path.write_text(_with_other_numbers(path.read_text(), random))
        return
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["graphstrap"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    info = header["info"]
    if random.random() < 0.8:
        info["recipe"] = _with_other_numbers(info["recipe"], random)
    else:
        info[random.choice(("num_nodes", "edge_size", "num_classes", "seed"))] = random.choice(SIZES)
    save_tensors(path, tensors, kind=header["kind"], info=info)


def _with_other_numbers(recipe: str, random: Random) -> str:
    lines = recipe.splitlines()
    numbers = [i for i, line in enumerate(lines) if re.search(r"(size|num_).*= \[?\d+\]?$", line)]
    names = [i for i, line in enumerate(lines) if line.startswith("name = ")]
    for i in random.sample(numbers, random.choice((1, 2, len(numbers)))):
        count = random.choice((1, 1, 3, 100, 5000))
        many = ", ".join(str(random.choice(SIZES)) for _ in range(count))
        lines[i] = re.sub(r"\d+", many if "[" in lines[i] else str(random.choice(SIZES)), lines[i])
    if random.random() < 0.3:
        lines[names[1]] = f'name = "{random.choice(("gcn", "mean-pooling", "gat", "mpnn", "mlp"))}"'
        lines[names[2]] = f'name = "{random.choice(("bgrl", "grace", "dgi", "gmi", "mvgrl", "deepwalk"))}"'
    return "\n".join(lines) + "\n"


def copy_folder(source: Path, target: Path) -> None:
    """A fresh copy, whatever lies at the target."""
    if target.is_symlink() or target.is_file():
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, symlinks=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges arrays with numpy by DLPack capsules, without a copy if possible. Memory must be released after its last use.

    tests/interop/dlpack_numpy.py --library build/tests/libdlpack_peer.so
"""

import argparse
import ctypes
import gc
import sys

import numpy

VERSION = tuple(int(part) for part in numpy.__version__.split(".")[:2])
TYPES = {0: numpy.float32, 1: numpy.float64, 2: numpy.int32, 3: numpy.int64, 4: numpy.uint8}  # the numbers of replicator::DType
if VERSION >= (1, 25):
    TYPES[5] = numpy.bool_
SHAPES = [(), (6,), (2, 3), (1, 3, 2)]
NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}

capsule_new = ctypes.pythonapi.PyCapsule_New
capsule_new.restype, capsule_new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
capsule_rename = ctypes.pythonapi.PyCapsule_SetName
capsule_rename.argtypes = [ctypes.py_object, ctypes.c_char_p]


def require(holds, claim):
    if not holds:
        sys.exit(f"failed: {claim}")


class Given:
    """What numpy.from_dlpack takes: an object with __dlpack__."""

    def __init__(self, library, dtype, rank, versioned):
        self.library, self.key, self.versioned = library, (dtype, rank, versioned), versioned
        self.elements = ctypes.c_void_p()

    def __dlpack__(self, **_):
        pointer = self.library.dlpack_give(*self.key, ctypes.byref(self.elements))
        return capsule_new(pointer, NAMES[self.versioned], None)

    def __dlpack_device__(self):
        return 1, 0


def check_given(library, dtype, rank, versioned):
    given = Given(library, dtype, rank, versioned)
    array = numpy.from_dlpack(given)
    what = f"{array.dtype} {array.shape}, versioned: {versioned}"
    require(array.dtype == TYPES[dtype] and array.shape == SHAPES[rank], f"the array given is {what}")
    require(array.ctypes.data == given.elements.value, f"{what} lies where it lay")
    expected = numpy.arange(array.size).astype(TYPES[dtype]).reshape(array.shape)
    require((array == expected).all(), f"{what} has its elements: {array}")
    require(library.dlpack_alive() == 1, f"{what} is alive while numpy has it")
    del array, given
    gc.collect()
    require(library.dlpack_alive() == 0, f"{what} is given back")


def take(library, array, versioned):
    """The array as replicator has it, and what its type or the error is called."""
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    text = ctypes.create_string_buffer(400)
    taken = library.dlpack_take(capsule_pointer(capsule, NAMES[versioned]), versioned, text, len(text))
    capsule_rename(capsule, USED[versioned])
    return taken, text.value.decode()


def check_taken(library, array, versioned, borrowed):
    references = sys.getrefcount(array)
    taken, text = take(library, array, versioned)
    what = f"{array.dtype} {array.shape}, versioned: {versioned}"
    require(taken, f"{what} is taken: {text}")
    shape = "[" + ", ".join(str(extent) for extent in array.shape) + "]"
    require(text == str(array.dtype) + shape, f"{what} is {text}")
    memory = ctypes.string_at(library.dlpack_elements(taken), library.dlpack_bytes(taken))
    require(memory == array.tobytes(), f"{what} has its elements in row-major order")
    same = library.dlpack_elements(taken) == array.ctypes.data
    require(same == borrowed or array.size == 0, f"{what} is {'borrowed' if borrowed else 'copied'}")
    require(sys.getrefcount(array) == references + (1 if borrowed and array.size else 0), f"{what} is kept while it is borrowed")
    library.dlpack_drop(taken)
    require(sys.getrefcount(array) == references, f"{what} is let go")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    library = ctypes.CDLL(parser.parse_args().library)
    library.dlpack_give.restype = library.dlpack_take.restype = library.dlpack_elements.restype = ctypes.c_void_p
    library.dlpack_take.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    library.dlpack_bytes.restype = ctypes.c_size_t
    for function in (library.dlpack_elements, library.dlpack_bytes, library.dlpack_drop):
        function.argtypes = [ctypes.c_void_p]
    for versioned in [False, True] if VERSION >= (2, 1) else [False]:
        for dtype in TYPES:
            for rank in range(len(SHAPES)):
                check_given(library, dtype, rank, versioned)
            whole = numpy.arange(24).astype(TYPES[dtype]).reshape(2, 3, 4)
            for array in whole, whole[1:], whole[0, 0], whole.reshape(1, 24)[:, :5], numpy.array(7, TYPES[dtype]), whole[:0]:
                check_taken(library, array, versioned, borrowed=True)
            for array in whole[:, :, ::2], whole.T, whole[::-1], numpy.broadcast_to(whole[0, 0], (3, 4)).copy(order="F"):
                check_taken(library, array, versioned, borrowed=False)
        taken, error = take(library, numpy.zeros(3, numpy.float16), versioned)
        require(not taken and error.startswith("from_dlpack: the tensor is float16; float32, "), f"float16 is refused: {error}")
    if VERSION >= (2, 1):
        fixed = numpy.arange(4.0)
        fixed.flags.writeable = False
        check_taken(library, fixed, True, borrowed=False)
    print(f"numpy {numpy.__version__}: {len(TYPES)} types, both ways")


if __name__ == "__main__":
    main()

"""quantize.py LIBS IN OUT TYPE: llama.cpp's quantiser out of a folder of its shared libraries.

The npm package @node-llama-cpp/linux-x64 carries them built; llama-cpp-python would have to be compiled, which takes
longer than all of our tests.
"""

import ctypes
import glob
import os
import sys

libs, source, target, kind = sys.argv[1:]


class Params(ctypes.Structure):
    """llama_model_quantize_params: its first fields never moved; the rest is more room than any version needs."""

    _fields_ = [("nthread", ctypes.c_int32), ("ftype", ctypes.c_int32), ("rest", ctypes.c_uint8 * 1016)]


def library(pattern, **how):
    return ctypes.CDLL(glob.glob(os.path.join(libs, pattern))[0], **how)


library("libggml-base.so", mode=ctypes.RTLD_GLOBAL)
ggml = library("libggml.v*.so", mode=ctypes.RTLD_GLOBAL)
ggml.ggml_backend_load.restype = ctypes.c_void_p
# The plainest CPU library: it runs everywhere, and the bytes of the file do not depend on it.
if not ggml.ggml_backend_load(os.path.join(libs, "libggml-cpu-x64.so").encode()):
    sys.exit("the CPU library cannot be loaded")
llama = library("libllama.v*.so")
llama.llama_model_quantize_default_params.restype = Params
params = llama.llama_model_quantize_default_params()
# LLAMA_FTYPE_MOSTLY_…
params.ftype = {"Q8_0": 7, "Q4_K_M": 15}[kind]
llama.llama_backend_init()
llama.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
sys.exit(llama.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)))

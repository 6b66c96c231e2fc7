// A library that looks like a CUDA backend of another build.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) const char* tokamak_cuda_abi() {
  return "0.0.0-another build";
}

// Must not be called: nothing that crosses has a known layout.
extern "C" __attribute__((visibility("default"))) void tokamak_cuda_make_ops(const void*, void*,
                                                                             void*) {
  std::abort();
}

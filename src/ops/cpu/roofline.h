// This machine's measured limits, with which kernels are compared: memory bandwidth and
// multiplications of all threads together.
#pragma once

#include <cstdint>
#include <string_view>

namespace tokamak {

struct CpuRoofline {
  double memory_gb_s = 0;   // reading half a gigabyte, most of which no cache holds
  double weights_gb_s = 0;  // reading `working_set` bytes repeatedly
  double cache_gb_s = 0;    // reading 256 KiB per thread repeatedly
  double int8_gmac_s = 0;   // 8-bit products added up in 32 bits; 0 if not measured
  double f32_gmac_s = 0;    // fused multiply-adds
  double bf16_gmac_s = 0;   // bf16 products added up in f32, AMX's if it is the ISA; 0 without
  double tile_gmac_s = 0;   // 8-bit products of AMX's tiles; 0 without
};

// `backend` names a backend that runs here ("cpu/avx512vnni", "cpu/avx2/precise", "reference").
// Uses only the instructions of its ISA. Returns the best of several tries. Takes about half a
// second and half a gigabyte.
CpuRoofline MeasureCpuRoofline(int threads, std::string_view backend, int64_t working_set);

}  // namespace tokamak

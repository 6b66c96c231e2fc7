// What this machine can do at most, measured: memory read and numbers multiplied by all threads
// together. What a kernel reaches is judged by it.
#pragma once

#include <cstdint>
#include <string_view>

namespace tokamak {

struct CpuRoofline {
  double memory_gb_s = 0;   // reading half a gigabyte, which caches hold little of
  double weights_gb_s = 0;  // reading `working_set` bytes over and over
  double cache_gb_s = 0;    // reading 256 KiB per thread over and over
  double int8_gmac_s = 0;   // 8-bit products added up in 32 bits; 0 where that is not measured
  double f32_gmac_s = 0;    // fused multiply-adds
};

// `backend` is the name of a backend that runs here ("cpu/avx512vnni", "cpu/avx2/precise",
// "reference"); instructions beyond its ISA are not used, nor AMX. Takes about half a second; the
// best of several tries counts. Half a gigabyte is used meanwhile.
CpuRoofline MeasureCpuRoofline(int threads, std::string_view backend, int64_t working_set);

}  // namespace tokamak

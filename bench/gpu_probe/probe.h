// Shared by the sections of the GPU probe: results as tables, timing, memory.
//
// A section is one question to the hardware. It runs in a process of its own with a time limit, so
// that a crash or a hang costs no other section, and prints each row as soon as it is measured.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace probe {

// Ends the section with a message if a call failed.
void Check(cudaError_t status, const char* call, const char* file, int line);
void Check(cublasStatus_t status, const char* call, const char* file, int line);
#define PROBE_CHECK(call) ::probe::Check((call), #call, __FILE__, __LINE__)

// A section's results: tables in Markdown, on stdout and in <folder>/<section>.md. Each line is
// flushed, so that what was measured survives a time limit.
class Report {
 public:
  Report(const std::string& folder, const std::string& section, double seconds);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void Text(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // Starts a table. `columns`: "kernel | MB | us | TB/s".
  void Table(const std::string& title, const std::string& columns);
  // One row of it, cells separated by " | ".
  void Row(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // Writes `bytes` to <folder>/<name>: answers too large for a table.
  void File(const std::string& name, const void* data, size_t bytes);
  // Returns whether that many seconds are left of the section's time. If not, writes that the table
  // ends early. A section's rows are in order of importance, so the least important are missing.
  bool HasSeconds(double seconds);

 private:
  void Line(const std::string& line);
  std::string folder_;
  std::FILE* file_ = nullptr;
  double deadline_ = 0;
};

// Device memory, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  template <typename T = void>
  T* As() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Fills memory with random bf16 values: sums of uniform bits, about normal, deviation `scale`.
void FillRandomBf16(void* data, size_t count, float scale, uint64_t seed, cudaStream_t stream);
// Fills memory with random bits.
void FillRandomBits(void* data, size_t bytes, uint64_t seed, cudaStream_t stream);

// Median microseconds of one call of `launch` on `stream`, by events around `inner` calls, over
// `repeats` measurements after one warm-up. `before` runs ahead of each measurement, outside it
// (to reset inputs).
struct Timing {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
};
Timing Time(cudaStream_t stream, const std::function<void()>& launch, int repeats = 11,
            int inner = 1, const std::function<void()>& before = {});

// Times a kernel that only reads `bytes` contiguous bytes.
Timing TimePlainRead(const void* data, size_t bytes, uint32_t* out, cudaStream_t stream);

// Weight shapes [rows N, cols K] of a dense decoder layer, as models run them (merged).
struct WeightShape {
  const char* model;
  const char* name;
  int64_t n;
  int64_t k;
};
// qkv, o, gate_up and down of Qwen3-0.6B, Llama-3.1-8B and Qwen3-14B (bench/configs).
const std::vector<WeightShape>& DenseShapes();

int SmCount();
// Lets a kernel take `bytes` of dynamic shared memory, and makes SMs offer as much as they can.
void AllowSharedMemory(const void* kernel, int bytes);

// The sections, one file each.
void RunBits(Report& report);             // do tensor cores agree, and with which model
void RunKvLayout(Report& report);         // bandwidth of paged attention's reads
void RunDependentLaunch(Report& report);  // chains of weight-reading kernels
void RunKChunks(Report& report);          // sums over chunks of K: inside a CTA or over a cluster
void RunGraphs(Report& report);           // what capturing, updating and launching cost
void RunWgmma(Report& report);            // products with weights as the 64-row operand
void RunTools(Report& report);            // kernels for memcheck, racecheck and ncu

}  // namespace probe

#include "bench/gpu_probe/probe.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "base/version.h"

namespace probe {
namespace {

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string Format(const char* format, va_list arguments) {
  char text[4096];
  std::vsnprintf(text, sizeof(text), format, arguments);
  return text;
}

// The driver's version and the present clocks of this process's GPU, from nvidia-smi.
std::string DriverAndClocks() {
  int device = 0;
  char bus[32] = "0";
  PROBE_CHECK(cudaGetDevice(&device));
  PROBE_CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), device));
  const std::string command =
      "nvidia-smi --id=" + std::string(bus) +
      " --query-gpu=driver_version,clocks.sm,clocks.max.sm,clocks.mem,clocks.max.mem,power.draw,"
      "temperature.gpu --format=csv,noheader 2>&1";
  char line[256] = "";
  std::FILE* output = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): a fixed command
  const bool read = output != nullptr && std::fgets(line, sizeof(line), output) != nullptr;
  if (output != nullptr) (void)pclose(output);
  if (!read) return "nvidia-smi said nothing";
  std::string text = line;
  if (text.back() == '\n') text.pop_back();
  return "driver, SM clock now and at most, memory clock now and at most, power, C: " + text;
}

}  // namespace

void Check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  std::fprintf(stdout, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
  std::exit(1);
}

void Check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stdout, "%s:%d: %s: cuBLAS status %d\n", file, line, call, static_cast<int>(status));
  std::exit(1);
}

Report::Report(const std::string& folder, const std::string& section, double seconds)
    : folder_(folder), file_(std::fopen((folder + "/" + section + ".md").c_str(), "w")) {
  deadline_ = Now() + seconds;
  if (file_ == nullptr) {
    std::fprintf(stdout, "cannot write to %s\n", folder.c_str());
    std::exit(1);
  }
  Line("## " + section);
  cudaDeviceProp properties{};
  int driver = 0;
  PROBE_CHECK(cudaGetDeviceProperties(&properties, 0));
  PROBE_CHECK(cudaDriverGetVersion(&driver));
  const std::string commit(tokamak::Commit());
  Text("commit %s; %s, %d SMs, compute capability %d.%d, CUDA %d.%d of the driver, limit %.0f s",
       commit.c_str(), properties.name, properties.multiProcessorCount, properties.major,
       properties.minor, driver / 1000, driver % 1000 / 10, seconds);
  Text("before: %s", DriverAndClocks().c_str());
}

Report::~Report() {
  Text("\nafter: %s", DriverAndClocks().c_str());
  std::fclose(file_);
}

void Report::Line(const std::string& line) {
  for (std::FILE* out : {stdout, file_}) {
    std::fprintf(out, "%s\n", line.c_str());
    std::fflush(out);
  }
}

void Report::Text(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Line(Format(format, arguments));
  va_end(arguments);
}

void Report::Table(const std::string& title, const std::string& columns) {
  Line("\n" + title + "\n\n| " + columns + " |");
  std::string rule = "|";
  for (size_t i = 0; i <= static_cast<size_t>(std::count(columns.begin(), columns.end(), '|')); ++i)
    rule += "---|";
  Line(rule);
}

void Report::Row(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Line("| " + Format(format, arguments) + " |");
  va_end(arguments);
}

void Report::File(const std::string& name, const void* data, size_t bytes) {
  std::FILE* file = std::fopen((folder_ + "/" + name).c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, bytes, file) != bytes) {
    Text("could not write %s", name.c_str());
  }
  if (file != nullptr) std::fclose(file);
}

bool Report::HasSeconds(double seconds) {
  const double left = deadline_ - Now();
  if (left >= seconds) return true;
  Text("\nSTOPPED here: %.0f s of this section's time were left.", left);
  return false;
}

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes) { PROBE_CHECK(cudaMalloc(&data_, bytes)); }

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) (void)cudaFree(data_);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Timing Time(cudaStream_t stream, const std::function<void()>& launch, int repeats, int inner,
            const std::function<void()>& before) {
  cudaEvent_t start = nullptr, stop = nullptr;
  PROBE_CHECK(cudaEventCreate(&start));
  PROBE_CHECK(cudaEventCreate(&stop));
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    if (before) before();
    PROBE_CHECK(cudaEventRecord(start, stream));
    for (int j = 0; j < inner; ++j) launch();
    PROBE_CHECK(cudaEventRecord(stop, stream));
    PROBE_CHECK(cudaEventSynchronize(stop));
    PROBE_CHECK(cudaGetLastError());
    float milliseconds = 0;
    PROBE_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    if (i > 0) times.push_back(1e3 * milliseconds / inner);
  }
  PROBE_CHECK(cudaEventDestroy(start));
  PROBE_CHECK(cudaEventDestroy(stop));
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

const std::vector<WeightShape>& DenseShapes() {
  static const std::vector<WeightShape> shapes = {
      {"Qwen3-0.6B", "qkv", 4096, 1024},        {"Qwen3-0.6B", "o", 1024, 2048},
      {"Qwen3-0.6B", "gate_up", 6144, 1024},    {"Qwen3-0.6B", "down", 1024, 3072},
      {"Llama-3.1-8B", "qkv", 6144, 4096},      {"Llama-3.1-8B", "o", 4096, 4096},
      {"Llama-3.1-8B", "gate_up", 28672, 4096}, {"Llama-3.1-8B", "down", 4096, 14336},
      {"Qwen3-14B", "qkv", 7168, 5120},         {"Qwen3-14B", "o", 5120, 5120},
      {"Qwen3-14B", "gate_up", 34816, 5120},    {"Qwen3-14B", "down", 5120, 17408},
  };
  return shapes;
}

int SmCount() {
  int count = 0;
  PROBE_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

void AllowSharedMemory(const void* kernel, int bytes) {
  PROBE_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  PROBE_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                   cudaSharedmemCarveoutMaxShared));
}

}  // namespace probe

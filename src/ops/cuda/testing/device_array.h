// Device memory and streams for tests of kernels by themselves.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "ops/cuda/kernel_form.h"

namespace tokamak::cuda {

inline int DeviceCapability() {
  int device = 0, major = 0, minor = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), cudaSuccess);
  return 10 * major + minor;
}

// The forms of kernels that the device runs.
inline std::vector<KernelForm> FormsHere() {
  if (FormFor(DeviceCapability()) == KernelForm::kAmpere) return {KernelForm::kAmpere};
  return {KernelForm::kHopper, KernelForm::kAmpere};
}

class CudaTestStream {
 public:
  CudaTestStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~CudaTestStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
  CudaTestStream(const CudaTestStream&) = delete;
  CudaTestStream& operator=(const CudaTestStream&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, Bytes()), cudaSuccess);
    data_ = static_cast<T*>(memory);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    const CudaTestStream stream;
    EXPECT_EQ(cudaMemcpyAsync(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice,
                              stream.get()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  }
  ~DeviceArray() { (void)cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return count_; }

  // Reads the array once the stream has reached this point.
  std::vector<T> Download(const CudaTestStream& stream) const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost,
                              stream.get()),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    return values;
  }

 private:
  size_t Bytes() const { return count_ > 0 ? count_ * sizeof(T) : 1; }

  const size_t count_;
  T* data_ = nullptr;
};

}  // namespace tokamak::cuda

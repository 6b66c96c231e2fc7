// A worker process: one rank of a model, for a driver in another process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tokamak/status.h"

namespace tokamak {

struct WorkerOptions {
  std::string model = {};
  std::string mmproj = {};
  std::string dummy_dtype = "bf16";
  std::string connect = {};  // the driver's address
  int32_t rank = 0;
  // Called on another thread when the driver has gone. The rank may be waiting for others then, so
  // the process should end.
  std::function<void()> on_driver_gone = {};
};

// Connects to the driver, loads the model as it says, and runs its steps until it goes. Errors have
// been sent to the driver too.
Status RunWorker(const WorkerOptions& options);

// The file through which ranks exchange values, in the folder of the driver's socket.
std::string SharedMemoryPath(const std::string& address);

}  // namespace tokamak

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
  std::string driver = {};  // its address: unix:PATH or HOST:PORT
  // For HOST:PORT, PEM files: this worker's certificate and its key, and the authority that must
  // have signed the driver's.
  std::string cert = {};
  std::string key = {};
  std::string ca = {};
  // For HOST:PORT and several ranks: the folder that the driver has for them. A Unix socket is in
  // that folder.
  std::string folder = {};
  int32_t rank = 0;
  // Called on another thread when the driver has gone. The rank may be waiting for others then, so
  // the process should end.
  std::function<void()> on_driver_gone = {};
};

// Connects to the driver, loads the model as it says, and runs its steps until it goes. Errors have
// been sent to the driver too.
Status RunWorker(const WorkerOptions& options);

}  // namespace tokamak

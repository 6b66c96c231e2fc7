// The folder where a driver and the workers of its machine meet.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "tensor/device.h"
#include "tokamak/engine_options.h"
#include "tokamak/status.h"

namespace tokamak {

// Only this user may enter it. It has the driver's Unix socket, if there is one, and until all
// workers have loaded the model the memory through which ranks exchange values.
class WorkerFolder {
 public:
  // For the workers that this process starts a new folder; with worker_address, the one that the
  // options name, which is made if it does not exist. kUnavailable if another driver uses that, or
  // others may enter it.
  static Result<std::unique_ptr<WorkerFolder>> Make(const EngineOptions& options);
  ~WorkerFolder();

  // The address at which workers join.
  const std::string& address() const { return address_; }
  // Makes the memory. Replaces what a driver that was killed has left.
  Status CreateMemory(size_t bytes);
  // Removes the memory, and a new folder, once all workers have what they need from it.
  void Close();

  // On the worker's side. kUnavailable if the folder is another user's, or others may enter it.
  static Result<Buffer> MapMemory(const std::string& folder, size_t bytes);

 private:
  WorkerFolder(std::string path, std::string address, int lock)
      : path_(std::move(path)), address_(std::move(address)), lock_(lock) {}
  static Result<std::unique_ptr<WorkerFolder>> Use(const std::string& path,
                                                   const std::string& address);

  const std::string path_;  // empty: these workers need no folder
  const std::string address_;
  const int lock_;  // of a folder that the options name; -1: a new one
};

}  // namespace tokamak

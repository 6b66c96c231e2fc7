// A worker's side of a RemoteExecutor.
#pragma once

#include <functional>
#include <string>

#include "executor/executor.h"
#include "ops/host/communicator.h"
#include "rpc/message_stream.h"

namespace tokamak {

// Runs the steps that a driver sends on this rank's executor, until the stream ends; returns the
// reason for that, or what was wrong with a message. `communicator`: null if there is no other
// rank.
Status ServeRank(Executor& executor, Communicator* communicator, Inbox& inbox,
                 const std::function<void(std::string)>& send);

}  // namespace tokamak

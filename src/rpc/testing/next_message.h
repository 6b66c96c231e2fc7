// Taking messages from an inbox in tests.
#pragma once

#include <chrono>
#include <utility>

#include "base/error.h"
#include "rpc/message_stream.h"

namespace tokamak {

// Waits for a message; an error of stream -1 if none comes.
inline Incoming Next(Inbox& inbox) {
  auto incoming = inbox.Take(std::chrono::steady_clock::now() + std::chrono::seconds(30));
  return incoming ? *std::move(incoming) : Incoming{-1, Unavailable("nothing came")};
}

}  // namespace tokamak

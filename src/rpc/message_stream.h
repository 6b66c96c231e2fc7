// Streams of whole messages between processes, over gRPC. Only grpc_stream.cc includes gRPC.
//
// A stream is one bidirectional call, over which messages go both ways in order. What they mean is
// in worker_messages.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "rpc/endpoint.h"
#include "tokamak/status.h"

namespace tokamak {

inline constexpr size_t kMaxMessageBytes = size_t{1} << 30;

// What arrives on a stream. Nothing follows an error, with which the stream has ended.
struct Incoming {
  int32_t stream = 0;
  Result<std::string> message;
};

// What has arrived on any number of streams, in order. Thread-safe.
class Inbox {
 public:
  // `on_end` is called with each error, on a thread of gRPC. Whoever it tells can take the error,
  // and nobody can take it earlier. It must not wait or use the inbox.
  explicit Inbox(std::function<void(const Incoming&)> on_end = {}) : on_end_(std::move(on_end)) {}

  // False if so much waits already that the sender does not keep to the protocol.
  bool Push(Incoming incoming) EXCLUDES(mutex_);
  // Returns what arrived first, and waits for it until the deadline.
  std::optional<Incoming> Take(std::chrono::steady_clock::time_point deadline) EXCLUDES(mutex_);

 private:
  const std::function<void(const Incoming&)> on_end_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Incoming> queue_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0;
};

// Accepts streams and numbers them from 0. Thread-safe.
class MessageServer {
 public:
  // The inbox must outlive the server. Over TLS, a client without a certificate of the authority
  // gets no stream. kUnimplemented if this build has no gRPC; kUnavailable if the address cannot be
  // used.
  static Result<std::unique_ptr<MessageServer>> Listen(const Endpoint& endpoint, Inbox* inbox);
  // Ends all streams.
  virtual ~MessageServer() = default;

  // Does not wait. A message to a stream that has ended is dropped.
  virtual void Send(int32_t stream, std::string message) = 0;
  // From now on a new stream gets this message and ends; the inbox hears nothing of it.
  virtual void RefuseNew(std::string message) = 0;
};

// The other side: one stream, with number 0. Thread-safe.
class MessageClient {
 public:
  // Waits for a server, but not if one is there and either side does not accept the other's
  // certificate. The inbox must outlive the client. Errors are those of Listen.
  static Result<std::unique_ptr<MessageClient>> Connect(const Endpoint& endpoint,
                                                        std::chrono::milliseconds timeout,
                                                        Inbox* inbox);
  // Ends the stream.
  virtual ~MessageClient() = default;

  virtual void Send(std::string message) = 0;
  // Ends the stream when the server has read all messages. Waits for that, but not for long.
  virtual void Finish() = 0;
};

}  // namespace tokamak

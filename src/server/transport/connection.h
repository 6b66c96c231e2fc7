// One client's connection, which carries one request after the other. For this folder only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/transport/byte_stream.h"
#include "server/transport/http_server.h"
#include "server/transport/request_reader.h"
#include "server/transport/response_writer.h"
#include "server/transport/turns.h"

namespace tokamak {

inline std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// What connections share with their server. Constant except for the counters, which belong to the
// I/O thread.
struct ConnectionHost {
  HttpServer::Options options;
  HttpHandler handler;
  std::unique_ptr<boost::asio::io_context> io;
  bool draining = false;
  size_t arriving_bytes = 0;  // of incomplete request bodies
  size_t unsent_bytes = 0;    // of all responses
  Turns turns{*io};
};

// Three coroutines share a connection. Serve reads a request, awaits its handler, and goes on to
// the next. Pump reads ahead, and so notices when the client leaves during a response. Beyond
// kReadAhead bytes of further requests it stops reading; then only failing writes tell that the
// client has left. Send sends what the handler has written while the handler waits for more.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static constexpr size_t kReadAhead = 64 << 10;

  Connection(ConnectionHost& host, std::unique_ptr<ByteStream> stream, std::string client);

  // Runs until the connection ends.
  boost::asio::awaitable<void> Serve();
  // Answers with an error, without reading a request.
  boost::asio::awaitable<void> Refuse(int status, const std::string& message);
  void CloseIfIdle();
  void Close();

 private:
  using Clock = boost::asio::steady_timer::clock_type;
  enum class Next { kRequest, kAnswered, kEnd };

  boost::asio::awaitable<bool> Open();
  boost::asio::awaitable<void> Pump();
  boost::asio::awaitable<void> Send();
  boost::asio::awaitable<void> SendUnsent();
  boost::asio::awaitable<bool> WaitForMore(size_t than, Clock::time_point deadline);
  boost::asio::awaitable<Next> ReadRequest(RequestReader& reader);
  boost::asio::awaitable<bool> ReadHead(RequestReader& reader);
  boost::asio::awaitable<bool> ReadBody(RequestReader& reader);
  void Feed(RequestReader& reader);
  void StartResponse(RequestReader& reader, bool keep_alive);
  boost::asio::awaitable<void> Handle();
  boost::asio::awaitable<bool> SendRest();
  boost::asio::awaitable<void> WaitForTurn();
  boost::asio::awaitable<bool> WriteAll(const std::string& data);
  boost::asio::awaitable<void> Fail(const HttpRequest& request, int status,
                                    const std::string& message);
  boost::asio::awaitable<void> Linger();
  void StartDeadline(double seconds);  // calls Close when they are over
  void StopDeadline();

  ConnectionHost& host_;
  const HttpLimits& limits_;
  const std::unique_ptr<ByteStream> stream_;
  const std::string client_;                // a ClientNetwork
  std::string incoming_;                    // read but not parsed yet
  bool ended_ = false;                      // the client or we have closed
  bool discarding_ = false;                 // ignore all further input
  boost::asio::steady_timer arrived_;       // cancelled when incoming_ grows or ended_ becomes true
  boost::asio::steady_timer room_;          // cancelled when incoming_ shrinks
  boost::asio::steady_timer deadline_;      // of the current write, handshake or farewell
  uint64_t deadlines_ = 0;                  // number of the latest deadline: older ones are void
  std::shared_ptr<Turns::Timer> turn_;      // null unless it is waited for
  std::unique_ptr<ResponseWriter> writer_;  // of the current request; null between requests
  boost::asio::steady_timer to_send_;       // cancelled when there is something to send
  boost::asio::steady_timer sent_;          // cancelled when `sending_` becomes false
  bool sending_ = false;                    // output of writer_ is being written
  bool reading_ = false;                    // a request has begun to arrive
};

}  // namespace tokamak

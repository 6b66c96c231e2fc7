// One client's connection: requests one after the other. For this folder.
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

// The connections' view of their server. Never changes, but for the counters, which are the I/O
// thread's.
struct ConnectionHost {
  HttpServer::Options options;
  HttpHandler handler;
  std::unique_ptr<boost::asio::io_context> io;
  bool draining = false;
  size_t arriving_bytes = 0;  // of bodies that are not whole yet
  size_t unsent_bytes = 0;    // of responses, that clients have not taken in
  Turns turns{*io};
};

// Three coroutines share it. Serve reads a request, lets the handler answer it, and goes on to the
// next. Pump reads ahead, and so notices when the client leaves while its response is under way;
// after more than kReadAhead bytes of further requests, only failing writes tell of that. Send
// sends what the handler has written while the handler waits for more.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static constexpr size_t kReadAhead = 64 << 10;

  Connection(ConnectionHost& host, std::unique_ptr<ByteStream> stream, std::string client);

  // Until the connection ends.
  boost::asio::awaitable<void> Serve();
  // Answers with an error, whatever the client wants.
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
  void StartDeadline(double seconds);  // Close after that
  void StopDeadline();

  ConnectionHost& host_;
  const HttpLimits& limits_;
  const std::unique_ptr<ByteStream> stream_;
  const std::string client_;            // its ClientNetwork
  std::string incoming_;                // read and not yet parsed
  bool ended_ = false;                  // the client has closed, or we have
  bool discarding_ = false;             // what comes is of no interest
  boost::asio::steady_timer arrived_;   // cancelled when incoming_ grows or ended_ becomes true
  boost::asio::steady_timer room_;      // cancelled when incoming_ shrinks
  boost::asio::steady_timer deadline_;  // for the write, the handshake or the farewell under way
  uint64_t deadlines_ = 0;              // tells a deadline's late call from one in time
  std::shared_ptr<Turns::Timer> turn_;  // while it is waited for
  std::unique_ptr<ResponseWriter> writer_;  // the request that is being answered
  boost::asio::steady_timer to_send_;       // cancelled when there is something to send
  boost::asio::steady_timer sent_;          // cancelled when `sending_` becomes false
  bool sending_ = false;                    // what writer_ had is being written
  bool reading_ = false;                    // a request has begun to arrive
};

}  // namespace tokamak

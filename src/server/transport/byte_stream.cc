#include "server/transport/byte_stream.h"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace tokamak {
namespace {

namespace asio = boost::asio;

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(Socket socket) : socket_(std::move(socket)) {}

  Socket& socket() override { return socket_; }
  asio::awaitable<void> Handshake(Error& error) override {
    error = Error();
    co_return;
  }
  asio::awaitable<size_t> ReadSome(asio::mutable_buffer space, Error& error) override {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    const size_t got = co_await socket_.async_read_some(space, token);
    co_return got;
  }
  asio::awaitable<size_t> WriteSome(asio::const_buffer data, Error& error) override {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    const size_t put = co_await socket_.async_write_some(data, token);
    co_return put;
  }
  asio::awaitable<void> FinishWriting() override {
    Error ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    co_return;
  }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<ByteStream> MakePlainStream(ByteStream::Socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace tokamak

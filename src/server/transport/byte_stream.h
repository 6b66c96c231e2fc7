// A connection's bytes, plain or through TLS. For this folder only, because its headers are heavy.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <string>

namespace tokamak {

// Allows one reader and one writer at a time. Closing the socket ends every operation with an
// error.
class ByteStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Error = boost::system::error_code;

  virtual ~ByteStream() = default;
  virtual Socket& socket() = 0;
  // Must be called first.
  virtual boost::asio::awaitable<void> Handshake(Error& error) = 0;
  virtual boost::asio::awaitable<size_t> ReadSome(boost::asio::mutable_buffer space,
                                                  Error& error) = 0;
  // Returns how many bytes the system has taken: at least one, unless there is an error.
  virtual boost::asio::awaitable<size_t> WriteSome(boost::asio::const_buffer data,
                                                   Error& error) = 0;
  // Tells the peer that nothing more will be written. May wait until the peer says the same.
  virtual boost::asio::awaitable<void> FinishWriting() = 0;
};

std::unique_ptr<ByteStream> MakePlainStream(ByteStream::Socket socket);

}  // namespace tokamak

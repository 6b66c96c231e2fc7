#include "server/transport/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/tls_files.h"

namespace tokamak {
namespace {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using Context = std::shared_ptr<ssl::context>;

// Ciphers with forward secrecy and authenticated encryption, as all of TLS 1.3 have.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

class TlsStream final : public ByteStream {
 public:
  TlsStream(Socket socket, Context context)
      : context_(std::move(context)), stream_(std::move(socket), *context_) {}

  Socket& socket() override { return stream_.next_layer(); }
  asio::awaitable<void> Handshake(Error& error) override {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    co_await stream_.async_handshake(ssl::stream_base::server, token);
  }
  asio::awaitable<size_t> ReadSome(asio::mutable_buffer space, Error& error) override {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    const size_t got = co_await stream_.async_read_some(space, token);
    co_return got;
  }
  // One TLS record at a time, 16 KiB.
  asio::awaitable<size_t> WriteSome(asio::const_buffer data, Error& error) override {
    auto token = asio::redirect_error(asio::use_awaitable, error);
    const size_t put = co_await stream_.async_write_some(data, token);
    co_return put;
  }
  asio::awaitable<void> FinishWriting() override {
    Error ignored;
    auto token = asio::redirect_error(asio::use_awaitable, ignored);
    co_await stream_.async_shutdown(token);
  }

 private:
  const Context context_;  // with the certificate at the start of this connection
  ssl::stream<Socket> stream_;
};

// A client that offers protocols but not HTTP/1.1 is refused.
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* offered, unsigned int size, void*) {
  static constexpr unsigned char kHttp11[] = "\x08http/1.1";  // its length comes first
  unsigned char* chosen = nullptr;
  const int found =
      SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof(kHttp11) - 1, offered, size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

Result<Context> MakeContext(const std::string& cert_file, const std::string& key_file) {
  ERR_clear_error();
  Context context;
  try {
    context = std::make_shared<ssl::context>(ssl::context::tls_server);
  } catch (const boost::system::system_error& error) {
    return Internal("TLS: {}", error.what());
  }
  SSL_CTX* raw = context->native_handle();
  SSL_CTX_set_options(raw, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                               SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_NO_SSLv3);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // saves 34 KB per idle connection
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_alpn_select_cb(raw, SelectProtocol, nullptr);
  if (SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_cipher_list(raw, kCiphers) != 1) {
    return Internal("TLS: {}", TakeTlsError());
  }
  RETURN_IF_ERROR(UseCertificate(raw, {"tls_cert_file", cert_file}, {"tls_key_file", key_file}));
  return context;
}

// State of the two files. Equal as long as neither is replaced or written to.
using Stamp = std::array<int64_t, 8>;

Stamp StampOf(const std::string& cert_file, const std::string& key_file) {
  Stamp stamp = {};
  size_t at = 0;
  for (const std::string* path : {&cert_file, &key_file}) {
    struct stat info {};
    const bool there = ::stat(path->c_str(), &info) == 0;
    stamp[at++] = there ? static_cast<int64_t>(info.st_mtim.tv_sec) : -1;
    stamp[at++] = there ? static_cast<int64_t>(info.st_mtim.tv_nsec) : -1;
    stamp[at++] = there ? static_cast<int64_t>(info.st_ino) : -1;
    stamp[at++] = there ? static_cast<int64_t>(info.st_size) : -1;
  }
  return stamp;
}

}  // namespace

struct TlsServer::Impl {
  std::string cert_file, key_file;
  Context context;
  Stamp loaded;  // files that were loaded or refused last
  Stamp seen;    // files at the last check
};

TlsServer::TlsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsServer::~TlsServer() = default;

Result<std::unique_ptr<TlsServer>> TlsServer::Load(std::string cert_file, std::string key_file) {
  auto impl = std::make_unique<Impl>();
  impl->cert_file = std::move(cert_file);
  impl->key_file = std::move(key_file);
  std::unique_ptr<TlsServer> server(new TlsServer(std::move(impl)));
  RETURN_IF_ERROR(server->Reload());
  return server;
}

Status TlsServer::Reload() {
  impl_->loaded = impl_->seen = StampOf(impl_->cert_file, impl_->key_file);
  ASSIGN_OR_RETURN(impl_->context, MakeContext(impl_->cert_file, impl_->key_file));
  return Status();
}

bool TlsServer::FilesChanged() {
  const Stamp now = StampOf(impl_->cert_file, impl_->key_file);
  const bool at_rest = now == impl_->seen;
  impl_->seen = now;
  return at_rest && now != impl_->loaded;
}

std::unique_ptr<ByteStream> TlsServer::Wrap(ByteStream::Socket socket) const {
  return std::make_unique<TlsStream>(std::move(socket), impl_->context);
}

}  // namespace tokamak

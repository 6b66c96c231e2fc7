// For builds without gRPC (TOKAMAK_WORKERS=OFF).
#include "base/error.h"
#include "rpc/message_stream.h"

namespace tokamak {
namespace {

Status NoGrpc() {
  return Unimplemented(
      "workers=processes: this build has no gRPC; install libgrpc++-dev and configure it with "
      "TOKAMAK_WORKERS=ON, or use workers=threads");
}

}  // namespace

Result<std::unique_ptr<MessageServer>> MessageServer::Listen(const Endpoint&, Inbox*) {
  return NoGrpc();
}
Result<std::unique_ptr<MessageClient>> MessageClient::Connect(const Endpoint&,
                                                              std::chrono::milliseconds, Inbox*) {
  return NoGrpc();
}

}  // namespace tokamak

// Streams over TCP, where both sides show certificates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/testing/certificates.h"
#include "base/testing/free_port.h"
#include "rpc/message_stream.h"
#include "rpc/testing/next_message.h"

namespace tokamak {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class TlsStreamTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates_ = new TestCertificates();
    const TestCertificates& c = *certificates_;
    made_ = c.is_there() && c.MakeAuthority("ours") && c.MakeAuthority("theirs") &&
            c.Make("driver", "ours", "DNS:localhost,IP:127.0.0.1") &&
            c.Make("worker", "ours", "DNS:worker") &&
            c.Make("stranger", "theirs", "DNS:localhost") &&
            c.Make("elsewhere", "ours", "DNS:elsewhere") &&
            c.Make("expired", "ours", "DNS:localhost", -1);
  }
  static void TearDownTestSuite() { delete certificates_; }
  void SetUp() override {
    if (!made_) GTEST_SKIP() << "there is no openssl";
    const Endpoint nowhere{"unix:/no/such/folder/socket"};
    if (MessageServer::Listen(nowhere, &inbox_).status().code() == StatusCode::kUnimplemented) {
      GTEST_SKIP() << "no gRPC";
    }
  }

  Result<Endpoint> With(const std::string& name, const std::string& authority = "ours") const {
    return MakeEndpoint("driver", address_,
                        {.certificate = {"cert", certificates_->Certificate(name)},
                         .key = {"key", certificates_->Key(name)},
                         .authority = {"ca", certificates_->Certificate(authority)}});
  }
  Status Listen(const std::string& name, const std::string& authority = "ours") {
    ASSIGN_OR_RETURN(const Endpoint endpoint, With(name, authority));
    ASSIGN_OR_RETURN(server_, MessageServer::Listen(endpoint, &inbox_));
    return Status();
  }
  Status Connect(const std::string& name, const std::string& authority = "ours") {
    ASSIGN_OR_RETURN(const Endpoint endpoint, With(name, authority));
    ASSIGN_OR_RETURN(client_, MessageClient::Connect(endpoint, seconds(30), &of_client_));
    return Status();
  }
  // Whether the command prints anything.
  static bool GetsBytes(const std::string& command) {
    FILE* const pipe = ::popen((command + " </dev/null 2>/dev/null").c_str(), "r");
    const bool got = std::fgetc(pipe) != EOF;
    ::pclose(pipe);
    return got;
  }

  static inline TestCertificates* certificates_ = nullptr;
  static inline bool made_ = false;
  const std::string address_ = "localhost:" + FreePort();
  Inbox inbox_, of_client_;
  std::unique_ptr<MessageServer> server_;
  std::unique_ptr<MessageClient> client_;
};

TEST_F(TlsStreamTest, CarriesMessagesBothWays) {
  ASSERT_EQ(Listen("driver").ToString(), Status().ToString());
  ASSERT_EQ(Connect("worker").ToString(), Status().ToString());
  client_->Send(std::string(3 << 20, 'x'));
  client_->Send("end");
  EXPECT_EQ(Next(inbox_).message->size(), size_t{3} << 20);
  EXPECT_EQ(*Next(inbox_).message, "end");
  server_->Send(0, "answer");
  EXPECT_EQ(*Next(of_client_).message, "answer");
}

TEST_F(TlsStreamTest, RefusesWorkersWithoutACertificateOfItsAuthority) {
  ASSERT_EQ(Listen("driver").ToString(), Status().ToString());
  ASSERT_EQ(Connect("worker").ToString(), Status().ToString());
  const auto first = std::move(client_);
  for (const char* name : {"stranger", "expired"}) {
    EXPECT_THAT(Connect(name).ToString(),
                HasSubstr("closes the connection; it accepts only certificates of its own"));
  }
  // Whatever else connects gets no byte of HTTP/2 before the connection is closed.
  EXPECT_FALSE(GetsBytes("timeout 60 openssl s_client -quiet -alpn h2 -connect " + address_));
  EXPECT_FALSE(
      GetsBytes("timeout 60 bash -c 'exec 3<>/dev/tcp/${0%:*}/${0#*:}; "
                "printf \"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\" >&3; cat <&3' " +
                address_));
  EXPECT_TRUE(GetsBytes(
      fmt::format("timeout 5 openssl s_client -quiet -alpn h2 -connect {} "
                  "-cert {} -key {}",
                  address_, certificates_->Certificate("worker"), certificates_->Key("worker"))));
  first->Send("still there");
  EXPECT_EQ(*Next(inbox_).message, "still there");
}

TEST_F(TlsStreamTest, RefusesADriverThatIsNotTheOneItMeans) {
  ASSERT_EQ(Listen("driver").ToString(), Status().ToString());
  EXPECT_THAT(Connect("worker", "theirs").ToString(), HasSubstr("certificate verify failed"));
  server_.reset();
  ASSERT_EQ(Listen("elsewhere").ToString(), Status().ToString());
  EXPECT_THAT(Connect("worker").ToString(), HasSubstr("localhost is not in peer certificate"));
  server_.reset();
  ASSERT_EQ(Listen("expired").ToString(), Status().ToString());
  EXPECT_THAT(Connect("worker").ToString(), HasSubstr("certificate verify failed"));
}

TEST_F(TlsStreamTest, TwoDriversCannotHaveOnePort) {
  ASSERT_EQ(Listen("driver").ToString(), Status().ToString());
  const auto first = std::move(server_);
  EXPECT_THAT(Listen("driver").ToString(), HasSubstr(address_ + ": cannot listen there"));
}

TEST_F(TlsStreamTest, SendsNothingOverTcpWithoutTls) {
  EXPECT_EQ(MessageServer::Listen({address_}, &inbox_).status().message(),
            address_ + ": needs TLS");
  EXPECT_EQ(MessageClient::Connect({address_}, seconds(1), &inbox_).status().message(),
            address_ + ": needs TLS");
  EXPECT_THAT(MakeEndpoint("driver", address_, {{"cert"}, {"key"}, {"ca"}}).status().message(),
              HasSubstr("TCP needs cert, key and ca"));
}

TEST_F(TlsStreamTest, NamesTheFileAtFault) {
  const auto error = [this](const std::string& cert, const std::string& key,
                            const std::string& ca) {
    return MakeEndpoint("driver", address_, {{"cert", cert}, {"key", key}, {"ca", ca}})
        .status()
        .ToString();
  };
  const TestCertificates& c = *certificates_;
  EXPECT_EQ(error(c.Certificate("worker"), c.Key("worker"), c.Certificate("ours")),
            Status().ToString());
  EXPECT_THAT(error(c.Certificate("worker"), c.Key("driver"), c.Certificate("ours")),
              HasSubstr("is not the key of the certificate in cert="));
  EXPECT_THAT(error(c.Key("worker"), c.Certificate("worker"), c.Certificate("ours")),
              HasSubstr("are key and cert swapped?"));
  EXPECT_THAT(error(c.Certificate("worker"), c.Key("worker"), c.Key("ours")),
              HasSubstr("holds no CERTIFICATE in PEM form, but a PRIVATE KEY"));
  EXPECT_THAT(error(c.Certificate("worker"), c.Key("worker"), c.Path("none")),
              HasSubstr("ca: " + c.Path("none")));
}

}  // namespace
}  // namespace tokamak

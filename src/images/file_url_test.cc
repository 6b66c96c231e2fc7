#include "images/file_url.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace tokamak {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

// DIR/root is the root. DIR/secret, and DIR/root-2, whose name begins as the root's, are outside.
class FileUrl : public testing::Test {
 protected:
  FileUrl() {
    std::string pattern = testing::TempDir() + "tokamak_file_url_XXXXXX";
    dir_ = fs::canonical(::mkdtemp(pattern.data())).string();
    fs::create_directories(dir_ + "/root/a b");
    fs::create_directory(dir_ + "/root-2");
    Write("secret", "secret");
    Write("root-2/c", "secret");
    Write("root/cat.png", "cat");
    Write("root/a b/100%.png", "percent");
    auto root = ImageRoot::Open(dir_ + "/root");
    EXPECT_TRUE(root.ok()) << root.status().ToString();
    if (root.ok()) root_ = *std::move(root);
  }
  ~FileUrl() override { fs::remove_all(dir_); }

  void Write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << content;
  }
  std::string Url(const std::string& below_dir) const { return "file://" + dir_ + "/" + below_dir; }
  // The file's content, or the error.
  std::string Read(const std::string& url, const DecodeLimits& limits = {}) const {
    const Result<std::string> bytes = root_->Read(url, limits);
    if (bytes.ok()) return *bytes;
    EXPECT_THAT(bytes.status().code(),
                testing::AnyOf(StatusCode::kInvalidArgument, StatusCode::kResourceExhausted));
    return std::string(bytes.status().message());
  }

  std::string dir_;
  std::unique_ptr<const ImageRoot> root_;
};

constexpr char kNone[] = "there is no such file below the folder of --image-root";

TEST_F(FileUrl, ReadsFilesBelowTheRoot) {
  EXPECT_EQ(Read(Url("root/cat.png")), "cat");
  EXPECT_EQ(Read("FILE://localhost" + dir_ + "/root/cat.png"), "cat");
  EXPECT_EQ(Read(Url("root/a%20b/100%25.png")), "percent");
  EXPECT_EQ(Read(Url("root/a b/../cat.png")), "cat");
  EXPECT_EQ(Read(Url("root/%63at.png")), "cat");
  // Links that stay inside are fine: datasets are often made of them.
  fs::create_symlink("../cat.png", dir_ + "/root/a b/inside");
  EXPECT_EQ(Read(Url("root/a%20b/inside")), "cat");
}

TEST_F(FileUrl, TheRootMayBeNamedByALinkOrARelativePath) {
  fs::create_symlink("root", dir_ + "/link");
  const auto linked = ImageRoot::Open(dir_ + "/link/");
  ASSERT_TRUE(linked.ok());
  EXPECT_EQ(*(*linked)->Read(Url("link/cat.png")), "cat");
  EXPECT_EQ(*(*linked)->Read(Url("root/cat.png")), "cat");
  const auto relative = ImageRoot::Open(fs::relative(dir_ + "/root").string());
  ASSERT_TRUE(relative.ok());
  EXPECT_EQ(*(*relative)->Read(Url("root/cat.png")), "cat");
}

TEST_F(FileUrl, NothingOutsideIsRead) {
  fs::create_symlink("../secret", dir_ + "/root/up");
  fs::create_symlink(dir_ + "/secret", dir_ + "/root/absolute");
  fs::create_symlink(dir_ + "/root/cat.png", dir_ + "/root/absolute_inside");
  fs::create_directory_symlink("..", dir_ + "/root/parent");
  fs::create_symlink("loop", dir_ + "/root/loop");
  fs::create_symlink("/proc/self/environ", dir_ + "/root/environ");
  for (const char* path : {"secret",
                           "root/../secret",
                           "root/%2e%2e/secret",
                           "root/%2E./secret",
                           "root/a b/../../secret",
                           "root/up",
                           "root/absolute",
                           "root/absolute_inside",
                           "root/parent/secret",
                           "root/loop",
                           "root/environ",
                           "root-2/c",
                           "root",
                           "root/",
                           "root//cat.png/..",
                           "root/none",
                           "ROOT/cat.png",
                           "root/cat.png/x",
                           "root/parent/root/cat.png",
                           "root/..%2fsecret",
                           "root/./../secret"}) {
    EXPECT_THAT(Read(Url(path)), HasSubstr(kNone)) << path;
  }
  for (const char* url : {"file:///etc/passwd", "file:///proc/self/environ",
                          "file:///../etc/passwd", "file:/etc/passwd", "file:///dev/stdin"}) {
    EXPECT_THAT(Read(url), HasSubstr(kNone)) << url;
  }
}

TEST_F(FileUrl, OtherUrlsAreRefused) {
  const std::string path = dir_ + "/root/cat.png";
  for (const std::string& url :
       {std::string("file:"), std::string("file://"), std::string("file:cat.png"),
        "file://example.org" + path, "file://127.0.0.1" + path, "file:////" + path,
        "file://" + path + "?x", "file://" + path + "#x", "file://" + path + "%00",
        "file://" + path + "%", "file://" + path + "%2", "file://" + path + "%zz",
        "file://" + path + std::string(1, '\0'), "http://" + path, path, std::string(),
        Url("root/") + std::string(9000, 'a'), "file://user@localhost" + path}) {
    EXPECT_THAT(Read(url), HasSubstr("must be the URL of a file by its absolute path")) << url;
  }
}

TEST_F(FileUrl, OnlyRegularFilesAreRead) {
  ASSERT_EQ(::mkfifo((dir_ + "/root/pipe").c_str(), 0600), 0);  // opening one could wait forever
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string name = dir_ + "/root/s";
  ASSERT_LT(name.size(), sizeof(address.sun_path));
  name.copy(address.sun_path, name.size());
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(Read(Url("root/pipe")), HasSubstr("is not a regular file"));
  EXPECT_THAT(Read(Url("root/a%20b")), HasSubstr("is not a regular file"));
  EXPECT_THAT(Read(Url("root/s")), HasSubstr(kNone));  // sockets cannot be opened
  ::close(socket);
}

TEST_F(FileUrl, LongFilesAreRefusedUnread) {
  fs::resize_file(dir_ + "/root/cat.png", uint64_t{1} << 40);  // takes no room
  EXPECT_THAT(Read(Url("root/cat.png")),
              HasSubstr("the image is 1099.51 GB long, and the limit is"));
  fs::resize_file(dir_ + "/root/cat.png", 5);
  EXPECT_THAT(Read(Url("root/cat.png"), {.max_bytes = 4}), HasSubstr("the limit is"));
  EXPECT_THAT(Read(Url("root/cat.png"), {.max_bytes = 5}), Not(HasSubstr("the limit is")));
  fs::resize_file(dir_ + "/root/cat.png", 0);
  EXPECT_THAT(Read(Url("root/cat.png")), HasSubstr("the image is empty"));
}

// A check of the path before opening it would lose this race.
TEST_F(FileUrl, ARaceOfLinksLeadsNowhere) {
  const std::string real = dir_ + "/root/real", link = dir_ + "/root/link", name = dir_ + "/root/x";
  fs::create_directory(real);
  std::ofstream(real + "/secret") << "public";
  fs::create_directory_symlink("..", link);
  fs::rename(real, name);
  std::atomic<bool> end = false;
  std::thread racer([&] {
    while (!end) {
      fs::rename(name, real);
      fs::rename(link, name);
      fs::rename(name, link);
      fs::rename(real, name);
    }
  });
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Result<std::string> bytes = root_->Read(Url("root/x/secret"));
    if (!bytes.ok()) continue;
    ++read;
    EXPECT_EQ(*bytes, "public");
  }
  end = true;
  racer.join();
  EXPECT_GT(read, 0);
}

TEST(ImageRoot, AFolderIsNeeded) {
  EXPECT_EQ(ImageRoot::Open("/nonexistent").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(ImageRoot::Open("/dev/null").ok());
}

}  // namespace
}  // namespace tokamak

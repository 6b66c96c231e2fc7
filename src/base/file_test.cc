#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace tokamak {
namespace {

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string pattern = ::testing::TempDir() + "tokamak_file_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(FileTest, ReadsAnyRange) {
  const std::string path = Write("a", "0123456789");
  const Result<File> file = File::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(file->path(), path);
  std::string part(4, '\0');
  ASSERT_TRUE(file->ReadAt(3, part.data(), part.size()).ok());
  EXPECT_EQ(part, "3456");
  EXPECT_TRUE(file->ReadAt(10, part.data(), 0).ok());
}

TEST_F(FileTest, ReadingPastTheEndNamesFileOffsetAndWhatIsMissing) {
  const std::string path = Write("short", "0123456789");
  const Result<File> file = File::Open(path);
  ASSERT_TRUE(file.ok());
  char buffer[8];
  const Status status = file->ReadAt(6, buffer, sizeof(buffer));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(path + ": the file ends at byte 10 and lacks 4 bytes"),
            std::string::npos)
      << status.message();
}

// A model that is overwritten while it is read must give an error, not a crash.
TEST_F(FileTest, AFileThatShrinksAfterOpeningIsAnError) {
  const std::string path = Write("shrinks", std::string(8192, 'x'));
  const Result<File> file = File::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  std::string all(8192, '\0');
  EXPECT_EQ(file->ReadAt(0, all.data(), all.size()).code(), StatusCode::kDataLoss);
}

TEST_F(FileTest, AnOffsetBeyondWhatTheSystemCanAddressIsAnError) {
  const Result<File> file = File::Open(Write("a", "x"));
  ASSERT_TRUE(file.ok());
  char byte = 0;
  EXPECT_FALSE(file->ReadAt(std::numeric_limits<uint64_t>::max(), &byte, 1).ok());
}

TEST_F(FileTest, RefusesPathsThatAreNotFiles) {
  EXPECT_EQ(File::Open(folder_ + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(File::Open(folder_).status().message(), folder_ + ": is a directory, not a file");
  EXPECT_EQ(File::Open("/dev/null").status().code(), StatusCode::kInvalidArgument);
}

// Opening a pipe without a writer would block forever.
TEST_F(FileTest, APipeIsRefusedAtOnce) {
  const std::string path = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(File::Open(path).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(FileTest, MovingTransfersTheDescriptor) {
  Result<File> opened = File::Open(Write("a", "abc"));
  ASSERT_TRUE(opened.ok());
  File file = *std::move(opened);
  File other = *File::Open(Write("b", "xyz"));
  other = std::move(file);
  char text[3];
  ASSERT_TRUE(other.ReadAt(0, text, 3).ok());
  EXPECT_EQ(std::string(text, 3), "abc");
}

TEST_F(FileTest, ManyThreadsReadAtOnce) {
  std::string content(1 << 16, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 >> 3);
  const Result<File> file = File::Open(Write("shared", content));
  ASSERT_TRUE(file.ok());
  std::vector<int> wrong(4, -1);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      int count = 0;
      std::string part(1000, '\0');
      for (size_t i = 0; i < 200; ++i) {
        const size_t offset = (i * 7919 + thread * 104729) % (content.size() - part.size());
        if (!file->ReadAt(offset, part.data(), part.size()).ok() ||
            content.compare(offset, part.size(), part) != 0) {
          ++count;
        }
      }
      wrong[thread] = count;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(FileTest, ReadWholeFileHonorsItsLimit) {
  const std::string path = Write("whole", "12345");
  EXPECT_EQ(*ReadWholeFile(path, 5), "12345");
  EXPECT_EQ(ReadWholeFile(path, 4).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*ReadWholeFile(Write("empty", ""), 0), "");
}

}  // namespace
}  // namespace tokamak

// For tests of components that read files: a folder per test, and the text of a configuration error. Header
// only; needs GoogleTest.
#pragma once

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tenon::testing {

/// Each test has an empty folder, removed after it.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tenon_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Writes these bytes to a file and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
    return folder_ + "/" + name;
  }

  std::string folder_;
};

/// Returns the message of the error of this kind that `body` throws, or "no error".
template <typename Body>
std::string error_of(Body body, ErrorKind kind = ErrorKind::kConfig) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace tenon::testing

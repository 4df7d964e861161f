// The main function of programs that hold several suites. With --file=NAME_test.cpp the tests that stand in
// that source file are run, unless --gtest_filter names others: each ctest entry is one file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace {

constexpr int kWrongUse = 2;

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

/// File by full name of a test. A name that stands in two files is a mistake: no filter could tell them
/// apart.
std::map<std::string, std::string_view> files_of_tests() {
  std::map<std::string, std::string_view> files;
  const ::testing::UnitTest& program = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < program.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *program.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      const auto [known, fresh] =
          files.emplace(std::string(suite.name()) + "." + test.name(), base_name(test.file()));
      if (!fresh) {
        std::fprintf(stderr, "%s stands in %s and in %s; rename one of them\n", known->first.c_str(),
                     std::string(known->second).c_str(), test.file());
        std::exit(kWrongUse);
      }
    }
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const std::map<std::string, std::string_view> files = files_of_tests();
  constexpr std::string_view kOption = "--file=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with(kOption)) {
      std::fprintf(stderr, "unknown argument '%s', expected --file=NAME_test.cpp\n", argv[i]);
      return kWrongUse;
    }
    const std::string_view wanted = word.substr(kOption.size());
    std::string filter;
    for (const auto& [name, file] : files) {
      if (file == wanted) filter += name + ":";
    }
    if (filter.empty()) {
      std::fprintf(stderr, "no test of this program stands in '%s'\n", argv[i] + kOption.size());
      return kWrongUse;
    }
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}

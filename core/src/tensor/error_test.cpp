// Error kinds carry the program's exit status, and the refinements are caught as Error.
#include <tenon/error.hpp>

#include <gtest/gtest.h>

namespace tenon {
namespace {

struct Case {
  void (*fail)(const std::string&);
  ErrorKind kind;
  int status;
};

TEST(Error, CarriesItsExitStatusAndText) {
  for (const Case& c :
       {Case{fail_run, ErrorKind::kRun, 1}, Case{fail_config, ErrorKind::kConfig, 2},
        Case{fail_plugin, ErrorKind::kPlugin, 3}, Case{fail_device_lost, ErrorKind::kDeviceLost, 4}}) {
    try {
      c.fail("what, where, expected, found");
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.kind);
      EXPECT_EQ(error.exit_status(), c.status);
      EXPECT_STREQ(error.what(), "what, where, expected, found");
    }
  }
}

TEST(Error, DeadlineAndCancellationAreRunErrors) {
  EXPECT_THROW(throw DeadlineError("rank 3 is late"), Error);
  EXPECT_THROW(throw CancelledError("rank 1 failed"), Error);
  EXPECT_EQ(DeadlineError("x").kind(), ErrorKind::kRun);
  EXPECT_EQ(CancelledError("x").kind(), ErrorKind::kRun);
}

}  // namespace
}  // namespace tenon

// Libraries that are present, that are absent, and that lack a function.
#include "dynamic_library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::cuda {
namespace {

using ::testing::HasSubstr;

TEST(DynamicLibraries, AreFoundUnderTheFirstNameThatExists) {
  DynamicLibrary library({"libtenon_is_not_there.so.1", "libm.so.6"});
  ASSERT_TRUE(library.usable()) << library.reason();
  EXPECT_EQ(library.name(), "libm.so.6");
  EXPECT_EQ(library.reason(), "");
  double (*cosine)(double) = nullptr;
  library.resolve("cos", cosine);
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(DynamicLibraries, SayWhatWasTried) {
  DynamicLibrary library({"libtenon_is_not_there.so.1", "/nowhere/libtenon_is_not_there.so"});
  EXPECT_FALSE(library.usable());
  EXPECT_THAT(library.reason(), HasSubstr("libtenon_is_not_there.so.1"));
  EXPECT_THAT(library.reason(), HasSubstr("/nowhere/libtenon_is_not_there.so"));
  int (*function)() = nullptr;
  library.resolve("anything", function);
  EXPECT_EQ(function, nullptr);
}

TEST(DynamicLibraries, AreNotUsableWithoutAFunctionThatIsNeeded) {
  DynamicLibrary library({"libm.so.6"});
  int (*function)() = nullptr;
  library.resolve("tenon_has_no_such_function", function);
  EXPECT_EQ(function, nullptr);
  EXPECT_FALSE(library.usable());
  EXPECT_THAT(library.reason(), HasSubstr("libm.so.6 has no function tenon_has_no_such_function"));
}

}  // namespace
}  // namespace tenon::cuda

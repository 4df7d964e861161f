// Counters in a folder that has the shape of powercap: sums, wrap-around, what is left out, and files that
// are missing, closed, damaged, or vanish.
#include "rapl.hpp"

#include <tenon/testing/folders.hpp>
#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <system_error>

namespace tenon::rapl {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::make_policy;

double clock_now = 0;

/// The text of the Error(kRun) that `body` throws.
template <typename Body>
std::string reason_of(Body body) {
  return testing::error_of(body, ErrorKind::kRun);
}

class RaplZones : public testing::FolderTest {
 protected:
  void zone(const std::string& folder, const std::string& name, const std::string& energy,
            const std::string& most = "262143328850") {
    fs::create_directories(folder_ + "/" + folder);
    write(folder + "/name", name + "\n");
    write(folder + "/max_energy_range_uj", most + "\n");
    energy_of(folder, energy);
  }
  void energy_of(const std::string& folder, const std::string& energy) const {
    write(folder + "/energy_uj", energy + "\n");
  }
  testing::MadePolicy<Rapl> make() const {
    return make_policy<Rapl>(
        "root = '" + folder_ + "'", +[] { return clock_now; });
  }
};

TEST_F(RaplZones, SumsPackagesAndNothingElse) {
  zone("intel-rapl:1", "package-1", "5000000");
  zone("intel-rapl:0", "package-0", "1000000");
  zone("intel-rapl:0:0", "core", "1");
  zone("intel-rapl:0:1", "dram", "1");
  zone("intel-rapl:2", "psys", "1");
  zone("intel-rapl-mmio:0", "package-0", "1");
  zone("dtpm", "package-0", "1");
  clock_now = 7;
  const auto made = make();
  const PowerSourceInfo info = made->open(0);
  EXPECT_EQ(info.sensor, "RAPL package-0, package-1");
  EXPECT_EQ(info.unit, PowerUnit::kWatts);
  EXPECT_EQ(info.origin, PowerOrigin::kMeasured);
  EXPECT_EQ(info.rated, 0) << "no package says it";
  EXPECT_FALSE(made->every_rank());
  EXPECT_EQ(made->joules(), 0);
  for (const char* const other :
       {"intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0", "dtpm"})
    energy_of(other, "999999999");
  energy_of("intel-rapl:0", "2000000");
  energy_of("intel-rapl:1", "5500000");
  clock_now = 7.01;
  EXPECT_NEAR(made->read(123), 150, 1e-9) << "1.5 J in 10 ms";
  EXPECT_NEAR(made->joules(), 1.5, 1e-12);
}

TEST_F(RaplZones, HaveNoValueBeforeTheCountersCanHaveMoved) {
  zone("intel-rapl:0", "package-0", "0");
  clock_now = 1;
  const auto made = make();
  made->open(0);
  EXPECT_TRUE(std::isnan(made->read(0)));
  energy_of("intel-rapl:0", "40000");
  clock_now = 1.0005;
  EXPECT_TRUE(std::isnan(made->read(0))) << "half an update";
  clock_now = 1.002;
  EXPECT_NEAR(made->read(0), 20, 1e-6) << "the energy of both";
  clock_now = 1.5;
  EXPECT_TRUE(std::isnan(made->read(0))) << "no counter moved";
  energy_of("intel-rapl:0", "1036000");
  clock_now = 2;
  EXPECT_NEAR(made->read(0), 0.996 / 0.998, 1e-9);
}

TEST_F(RaplZones, GoOnFromZeroAfterTheirRange) {
  zone("intel-rapl:0", "package-0", "262143000000", "262143328850");
  clock_now = 0;
  const auto made = make();
  made->open(0);
  energy_of("intel-rapl:0", "671150");
  clock_now = 0.01;
  EXPECT_NEAR(made->read(0), 100, 1e-6) << "0.32885 J to the range and 0.67115 J from 0";
  EXPECT_NEAR(made->joules(), 1, 1e-9);
  energy_of("intel-rapl:0", "671151");
  EXPECT_NEAR(made->joules(), 1.000001, 1e-9);
}

TEST_F(RaplZones, KnowTheRatedPowerWhereEveryPackageSaysIt) {
  zone("intel-rapl:0", "package-0", "0");
  zone("intel-rapl:1", "package-1", "0");
  write("intel-rapl:0/constraint_0_max_power_uw", "205000000\n");
  EXPECT_EQ(make()->open(0).rated, 0);
  write("intel-rapl:1/constraint_0_max_power_uw", "205000000\n");
  EXPECT_EQ(make()->open(0).rated, 410);
}

TEST_F(RaplZones, SayWhyThereIsNoSensor) {
  const std::string none =
      "no " + folder_ +
      "/intel-rapl:* is a processor package; virtual machines and containers often have none";
  EXPECT_EQ(reason_of([&] { make()->open(0); }), none);
  zone("intel-rapl:0", "psys", "1");
  EXPECT_EQ(reason_of([&] { make()->open(0); }), none);
  const auto nowhere = make_policy<Rapl>("root = '/nowhere/powercap'");
  EXPECT_EQ(reason_of([&] { nowhere->open(0); }),
            "no /nowhere/powercap/intel-rapl:* is a processor package (No such file or directory); virtual "
            "machines "
            "and containers often have none");
  zone("intel-rapl:0", "package-0", "1");
  fs::remove(folder_ + "/intel-rapl:0/max_energy_range_uj");
  EXPECT_THAT(reason_of([&] { make()->open(0); }),
              HasSubstr("max_energy_range_uj cannot be read: No such file"));
}

/// While it lives, this thread has no capability: root too is refused where the permissions refuse its owner,
/// and the folders above stay open to it.
class WithoutCapabilities {
 public:
  WithoutCapabilities() {
    call(SYS_capget, held_);
    Sets fewer = held_;
    for (__user_cap_data_struct& set : fewer) set.effective = 0;  // the permitted ones can be taken back
    call(SYS_capset, fewer);
  }
  ~WithoutCapabilities() { call(SYS_capset, held_); }

 private:
  using Sets = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;
  static void call(long number, Sets& sets) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    if (::syscall(number, &header, sets.data()) != 0) throw std::system_error(errno, std::generic_category());
  }
  Sets held_{};
};

TEST_F(RaplZones, SayWhoMayReadThem) {
  zone("intel-rapl:0", "package-0", "1");
  fs::permissions(folder_ + "/intel-rapl:0/energy_uj", fs::perms::none);
  std::string reason;
  {
    const WithoutCapabilities now;
    reason = reason_of([&] { make()->open(0); });
  }
  EXPECT_THAT(
      reason,
      HasSubstr("Permission denied. Its reader must be root, or have been allowed to: sudo chmod a+r " +
                folder_ + "/intel-rapl:*/energy_uj"));
}

TEST_F(RaplZones, AreRefusedWhereTheyAreNoCounts) {
  for (const char* const text : {"", "x", "-5", "12 13", "1e6", "0x10", "99999999999999999999", " 7"}) {
    zone("intel-rapl:0", "package-0", text);
    EXPECT_THAT(reason_of([&] { make()->open(0); }), HasSubstr("expected a count of microjoules")) << text;
  }
}

TEST_F(RaplZones, EndTheSourceWhereTheyVanishOrLeaveTheirRange) {
  zone("intel-rapl:0", "package-0", "5", "1000");
  const auto made = make();
  made->open(0);
  energy_of("intel-rapl:0", "1001");
  EXPECT_THAT(reason_of([&] { made->read(0); }), HasSubstr("has 1001; expected at most the 1000 of"));
  write("intel-rapl:0/energy_uj", "");
  EXPECT_THAT(reason_of([&] { made->joules(); }), HasSubstr("has ''; expected a count"));
  // A read that fails, as that of a counter in error.
  fs::remove(folder_ + "/intel-rapl:0/energy_uj");
  fs::create_directory(folder_ + "/intel-rapl:0/energy_uj");
  EXPECT_THAT(reason_of([&] { made->read(0); }), HasSubstr("energy_uj cannot be read: Is a directory"));
  fs::remove_all(folder_ + "/intel-rapl:0");
  EXPECT_THAT(reason_of([&] { made->read(0); }), HasSubstr("energy_uj cannot be read: No such file"));
}

}  // namespace
}  // namespace tenon::rapl

// The file is read back with the library, as any other program would.
#include "simulate/hdf5_export.hpp"

#include "simulate/sample_writer.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tenon::simulate {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class Hdf5Export : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tenon-hdf5-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    manifest_.simulator = "darcy";
    manifest_.plugin = "tenon.porous";
    manifest_.plugin_version = "0.1.0";
    manifest_.config = "[simulator]\ntype = \"darcy\"\n";
    manifest_.seed = 7;
    manifest_.samples = 6;
    manifest_.fields = {{"a", DType::kF32, Shape{2}, false}, {"n", DType::kI64, Shape{1, 2}, true}};
    manifest_.shared = {{"grid", DType::kF64, Shape{3}, false}};
    const ArrayMemory shared(manifest_.shared);
    for (std::size_t i = 0; i < 3; ++i) shared.views()[0].as<double>()[i] = 0.5 * static_cast<double>(i);
    write_arrays(*files_, simulation_shared_folder(folder_), manifest_.shared, shared.views());
    for (const std::int64_t index : {0, 2, 5}) add(index);
  }
  void TearDown() override { remove_tree(*files_, folder_); }

  void add(std::int64_t index) {
    const ArrayMemory arrays(manifest_.fields);
    for (std::int64_t i = 0; i < 2; ++i) {
      arrays.views()[0].as<float>()[i] = static_cast<float>(10 * index + i);
      arrays.views()[1].as<std::int64_t>()[i] = -index - i;
    }
    write_arrays(*files_, simulation_sample_folder(folder_, index), manifest_.fields, arrays.views());
    manifest_.finished[index] = simulation_digest(arrays.views());
  }
  bool write() { return write_hdf5(*files_, folder_, manifest_); }

  struct Stored {
    std::vector<hsize_t> extents, chunk;
    std::vector<double> values;
  };
  Stored stored(const char* name) const {
    Stored result;
    const hid_t file = H5Fopen(hdf5_path(folder_).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    const hid_t data = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(data),
                plan = H5Dget_create_plist(data);
    result.extents.resize(H5Sget_simple_extent_ndims(space));
    H5Sget_simple_extent_dims(space, result.extents.data(), nullptr);
    if (H5Pget_layout(plan) == H5D_CHUNKED) {
      result.chunk.resize(result.extents.size());
      H5Pget_chunk(plan, static_cast<int>(result.chunk.size()), result.chunk.data());
    }
    result.values.resize(H5Sget_simple_extent_npoints(space));
    EXPECT_GE(H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, result.values.data()), 0)
        << name;
    for (const herr_t closed : {H5Pclose(plan), H5Sclose(space), H5Dclose(data), H5Fclose(file)})
      EXPECT_GE(closed, 0);
    return result;
  }

  std::unique_ptr<FileSystem> files_ = make_posix_files();
  std::string folder_;
  SimulationManifest manifest_;
};

TEST_F(Hdf5Export, HasEveryFinishedSampleInAChunkOfItsOwn) {
  EXPECT_TRUE(write());
  const Stored a = stored("/a"), n = stored("/n");
  EXPECT_THAT(a.extents, ElementsAre(3, 2));
  EXPECT_THAT(a.chunk, ElementsAre(1, 2));
  EXPECT_THAT(a.values, ElementsAre(0, 1, 20, 21, 50, 51));
  EXPECT_THAT(n.extents, ElementsAre(3, 1, 2));
  EXPECT_THAT(n.values, ElementsAre(0, -1, -2, -3, -5, -6));
  EXPECT_THAT(stored("/simulation/index").values, ElementsAre(0, 2, 5));
  EXPECT_THAT(stored("/simulation/shared/grid").values, ElementsAre(0, 0.5, 1));
  EXPECT_FALSE(std::filesystem::exists(hdf5_path(folder_) + ".partial"));
}

TEST_F(Hdf5Export, IsWrittenAgainWhenThereIsSomethingNew) {
  EXPECT_TRUE(write());
  EXPECT_FALSE(write()) << "nothing new";
  add(3);
  EXPECT_TRUE(write());
  EXPECT_THAT(stored("/simulation/index").values, ElementsAre(0, 2, 3, 5));
  std::ofstream(hdf5_path(folder_)) << "somebody's notes";
  EXPECT_TRUE(write()) << "not a file of this simulation";
}

TEST_F(Hdf5Export, LeavesTheOldFileWhenASampleCannotBeRead) {
  EXPECT_TRUE(write());
  manifest_.finished[4] = "a sample that is not there";
  EXPECT_ANY_THROW(write());
  EXPECT_THAT(stored("/simulation/index").values, ElementsAre(0, 2, 5));
  EXPECT_FALSE(std::filesystem::exists(hdf5_path(folder_) + ".partial"));
}

TEST_F(Hdf5Export, SaysWhatCannotBeWritten) {
  manifest_.fields[1].name = "simulation";
  std::filesystem::rename(folder_ + "/samples/000000/n.npy", folder_ + "/samples/000000/simulation.npy");
  manifest_.finished = {{0, "digest"}};
  try {
    write();
    ADD_FAILURE() << "two things of one name";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("HDF5 file '" + hdf5_path(folder_) +
                                         ".partial': cannot create dataset '/simulation/index': "));
  }
}

}  // namespace
}  // namespace tenon::simulate

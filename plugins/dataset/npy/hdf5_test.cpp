// Files as other programs write them: contiguous, chunked, compressed, of either byte order; and errors.
#include "arrays.hpp"

#include <tenon/error.hpp>
#include <tenon/testing/batches.hpp>
#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <hdf5.h>

#include <fstream>
#include <numeric>
#include <thread>

namespace tenon::npy::hdf5_test {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

using testing::Batch;
using testing::error_of;
using Made = testing::MadeData<Hdf5>;

/// Writes one file with the library.
class Writer {
 public:
  explicit Writer(const std::string& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Writer() { H5Fclose(file_); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// `stored`: type in the file; chunk: rows of a compressed chunk, 0 = contiguous.
  template <class T>
  void add(const char* name, hid_t stored, hid_t given, const std::vector<hsize_t>& extents, hsize_t chunk,
           const std::vector<T>& values) {
    const int rank = static_cast<int>(extents.size());
    const hid_t space = rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, extents.data(), nullptr);
    const hid_t plan = H5Pcreate(H5P_DATASET_CREATE), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    if (chunk > 0) {
      std::vector<hsize_t> block = extents;
      block[0] = chunk;
      H5Pset_chunk(plan, rank, block.data());
      H5Pset_shuffle(plan);
      H5Pset_deflate(plan, 6);
    }
    const hid_t data = H5Dcreate2(file_, name, stored, space, links, plan, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(data, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    for (const auto& close : {H5Dclose(data), H5Pclose(links), H5Pclose(plan), H5Sclose(space)})
      EXPECT_GE(close, 0);
  }

 private:
  hid_t file_;
};

std::vector<double> counting(std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

class Hdf5Test : public testing::FolderTest {
 protected:
  Made open(const std::string& toml) const {
    Made made = testing::make_data<Hdf5>(toml);
    made->open(1);
    return made;
  }
  std::string path(const char* name) const { return folder_ + "/" + name; }
};

constexpr const char* kAll = "batch = 3\nval_fraction = 0.0\nsplit = 'tail'\norder = 'sequential'\n";

TEST_F(Hdf5Test, ChunksCompressionAndByteOrderDoNotShow) {
  const std::string file = path("a.h5");
  {
    Writer writer(file);
    writer.add("/x", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {3, 2, 2}, 0, counting(12));
    writer.add("/deep/in/x", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, {3, 2, 2}, 2, counting(12));
    writer.add("/small", H5T_STD_I16BE, H5T_NATIVE_DOUBLE, {3}, 1, std::vector<double>{-5, 7, 300});
    writer.add("/bytes", H5T_STD_U8LE, H5T_NATIVE_DOUBLE, {3}, 0, std::vector<double>{0, 128, 255});
    writer.add("/long", H5T_STD_U32LE, H5T_NATIVE_DOUBLE, {3}, 3, std::vector<double>{1, 2, 4294967295.0});
  }
  const Made made = open("inputs = ['x=" + file + "', 'wide=" + file +
                         ":/deep/in/x']\ntargets = ['small=" + file + ":/small', 'bytes=" + file +
                         "', 'long=" + file + "']\ntypes = ['wide=f32']\nshapes = ['x=4']\n" + kAll);
  const DataInfo& info = made->info();
  ASSERT_EQ(info.fields.size(), 5u);
  EXPECT_EQ(info.fields[0].shape, Shape{4});
  EXPECT_EQ(info.fields[1].dtype, DType::kF32);
  EXPECT_EQ(info.fields[2].dtype, DType::kI32);
  EXPECT_EQ(info.fields[3].dtype, DType::kU8);
  EXPECT_EQ(info.fields[4].dtype, DType::kI64);
  ASSERT_EQ(info.sources.size(), 1u) << "one file, once";
  EXPECT_EQ(info.sources[0].path, file);
  Batch batch(*made.data);
  made->read({.first = 0, .count = 3}, batch.views);
  EXPECT_THAT(batch.values<float>(0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(batch.values<float>(1), batch.values<float>(0));
  EXPECT_THAT(batch.values<std::int32_t>(2), ElementsAre(-5, 7, 300));
  EXPECT_THAT(batch.values<std::uint8_t>(3), ElementsAre(0, 128, 255));
  EXPECT_THAT(batch.values<std::int64_t>(4), ElementsAre(1, 2, 4294967295));
}

TEST_F(Hdf5Test, ThreadsReadSideBySide) {
  const std::string file = path("a.h5");
  constexpr std::int64_t kSamples = 64;
  Writer(file).add("/x", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {kSamples, 8}, 5, counting(kSamples * 8));
  const Made made = open("inputs = ['x=" + file +
                         "']\nbatch = 1\nval_fraction = 0.0\nsplit = 'tail'\norder = 'sequential'");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      const Made mine = open("inputs = ['x=" + file +
                             "']\nbatch = 1\nval_fraction = 0.0\nsplit = 'tail'\norder = 'sequential'");
      for (const Made* from : {&made, &mine}) {
        Batch batch(*from->data);
        for (std::int64_t i = 0; i < kSamples; ++i) {
          (*from)->read({.first = i, .count = 1}, batch.views);
          wrong[t] += batch.values<double>(0)[3] != static_cast<double>(i * 8 + 3);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST_F(Hdf5Test, AFileThatShrinksIsNoticed) {
  const std::string file = path("a.h5");
  Writer(file).add("/x", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 64}, 0, counting(192));
  const Made made = open("inputs = ['x=" + file + "']\n" + kAll);
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 8);
  Batch batch(*made.data);
  try {
    made->read({.first = 0, .count = 3}, batch.views);
    ADD_FAILURE() << "zeros for what is gone";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), "data file '" + file + ":/x' has shrunk while it was read");
  }
}

TEST_F(Hdf5Test, RefusalsAreWholeMessages) {
  const std::string file = path("a.h5"), text = path("text.h5"), cut = path("cut.h5");
  {
    Writer writer(file);
    writer.add("/x", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {3, 2}, 0, counting(6));
    writer.add("/two", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {2, 2}, 0, counting(4));
    writer.add("/none", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {0, 2}, 0, counting(1));
    writer.add("/one", H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, {}, 0, counting(1));
    writer.add("/huge", H5T_STD_U64LE, H5T_NATIVE_DOUBLE, {3}, 0, counting(3));
    writer.add("/big", H5T_STD_I64LE, H5T_NATIVE_DOUBLE, {3}, 0, std::vector<double>{1, 2147483648.0, 0});
    const hid_t record = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(record, "a", 0, H5T_NATIVE_DOUBLE);
    writer.add("/record", record, record, {1}, 0, counting(1));
    H5Tclose(record);
  }
  std::ofstream(text) << "no HDF5 at all";
  std::filesystem::copy_file(file, cut);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  const auto said = [&](const std::string& inputs, const std::string& more = "") {
    return error_of([&] { open("inputs = ['x=" + inputs + "']\n" + more + kAll); });
  };
  EXPECT_EQ(said(file + ":/one"),
            "data file '" + file +
                ":/one': it is a single value, expected an array whose first extent counts samples");
  EXPECT_EQ(said(file + ":/none"), "data file '" + file + ":/none': it has no elements");
  EXPECT_EQ(said(file + ":/huge"),
            "data file '" + file +
                ":/huge': its elements are whole numbers of 64 bits without a sign, expected a "
                "sign or fewer bits");
  EXPECT_EQ(said(file + ":/record"),
            "data file '" + file + ":/record': its elements are names, records or text, expected numbers");
  EXPECT_EQ(
      said(file, "targets = ['y=" + file + ":/two']\n"),
      "data files '" + file + ":/x' and '" + file + ":/two': expected one number of samples, found 3 and 2");
  EXPECT_EQ(said(file, "targets = ['y=" + file + ":/big']\ntypes = ['y=i32']\n"),
            "data file '" + file + ":/big': 2147483648 at element 1 does not fit into i32");
  EXPECT_THAT(said(file + ":/no/such"),
              StartsWith("data file '" + file + "': it has no dataset '/no/such': "));
  EXPECT_THAT(said(text), StartsWith("data file '" + text + "': expected an HDF5 file: "));
  EXPECT_THAT(said(cut), StartsWith("data file '" + cut + "': expected an HDF5 file: "));
  EXPECT_THAT(said(path("no.h5")), ::testing::HasSubstr("cannot find '"));
  EXPECT_EQ(error_of([&] { open("inputs = ['" + file + "']"); }),
            "data.hdf5: inputs: expected \"name=file.h5:/dataset\", found \"" + file + "\"");
}

}  // namespace
}  // namespace tenon::npy::hdf5_test

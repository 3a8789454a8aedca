// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <filesystem>
#include <replicator/data/files/image_folder.hpp>
#include <replicator/data/files/scan_image_folder.hpp>
#include <replicator/data/take.hpp>
#include <string>
#include <vector>

#include "../support/told.hpp"
#include "temporary_folder.hpp"

namespace test_image_folder {

using namespace replicator;
using namespace replicator::detail;
using Catch::Contains;

TEST_CASE("an image folder has sorted classes and sorted files, as torchvision reads it") {
  const TemporaryFolder folder;
  for (const auto* name : {"zebra/b.JPEG", "zebra/a.jpg", "zebra/notes.txt", "zebra/sub/0.JPG", "ant/x.jpeg",
                           "ant/.hidden", "readme.md", "Bee/1.jpg", "Bee/1.PNG"})
    folder.write(name);
  const auto images = data::image_folder(folder.path());
  CHECK(images.classes() == std::vector<std::string>{"Bee", "ant", "zebra"});
  REQUIRE(images.images() == 6);
  std::vector<std::string> found;
  for (std::int64_t i = 0; i < 6; ++i) {
    const auto item = images(i);
    found.push_back(item.path.substr(folder.path().size() + 1) + " " + std::to_string(item.label));
  }
  CHECK(found == std::vector<std::string>{"Bee/1.PNG 0", "Bee/1.jpg 0", "ant/x.jpeg 1", "zebra/a.jpg 2", "zebra/b.JPEG 2",
                                          "zebra/sub/0.JPG 2"});
}

TEST_CASE("a folder that does not look like one of images is refused with the layout that is expected") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& path, const std::string& reason) {
    CHECK_THROWS_AS(data::image_folder(path), DataError);
    CHECK_THROWS_WITH(data::image_folder(path), Contains(path) && Contains(reason) && Contains("<folder>/cat/1.jpg"));
  };
  refused(folder.path() + "/absent", "no such folder");
  refused(folder.path(), "no sub-folders");
  const auto file = folder.write("1.jpg");
  refused(file, "not a folder");
  refused(folder.path(), "no sub-folders");
  folder.write("cat/1.jpg");
  folder.write("dog/1.gif");
  refused(folder.path(), "\"dog\" has no JPEG or PNG files");
}

TEST_CASE("pictures of other formats are skipped, which one line says for each folder") {
  const TemporaryFolder folder, output;
  for (const auto* name : {"cat/1.jpg", "cat/b.BMP", "cat/a.webp", "dog/sub/3.gif", "dog/2.jpeg", "dog/labels.txt"}) folder.write(name);
  const auto scanned = [&] {
    for (int replica = 0; replica < 3; ++replica) CHECK(data::image_folder(folder.path()).images() == 2);
  };
  CHECK(test::told(output, scanned) == "replicator: " + folder.path() +
                                           ": skipped 3 picture(s) that are no .jpg, .jpeg or .png files, \"cat/a.webp\" for instance: convert them, or move "
                                           "them elsewhere\n");
}

TEST_CASE("a picture that is a link to nowhere is refused, not left out") {
  const TemporaryFolder folder;
  folder.write("cat/1.jpg");
  std::filesystem::create_symlink(folder.path() + "/absent.jpg", folder.path() + "/cat/2.jpg");
  CHECK_THROWS_WITH(data::image_folder(folder.path()), Contains("/cat/2.jpg is no file: a link that leads nowhere"));
}

TEST_CASE("index stages choose images by position") {
  const TemporaryFolder folder;
  for (int i = 0; i < 7; ++i) folder.write("a/" + std::to_string(i) + ".jpg");
  const auto images = data::image_folder(folder.path());
  const data::Shard shard{.seed = 3, .replica = 1, .replicas = 2};
  const auto part = images | data::shuffle() | data::shard(shard) | data::epochs(2) | data::take(5);
  CHECK(part.index().limit() == 5);
  const data::Permutation first{7, 3, 0}, second{7, 3, 1};
  CHECK(part(0).path == images(first(1)).path);
  CHECK(part(3).path == images(second(0)).path);
  CHECK(part(3).epoch == 1);
  CHECK(part(3).number == 7);
  const auto own_seed = images | data::shuffle(9) | data::shard(shard);
  CHECK(own_seed(0).path == images(data::Permutation{7, 9, 0}(1)).path);
  CHECK_THROWS_AS(images | data::shard(shard) | data::shuffle(), BuildError);
}

}  // namespace test_image_folder

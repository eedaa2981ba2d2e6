import struct
import unittest

import weir
from weir import Batch, BatchBuilder, Column, Key, key_group, key_hash
from weir._host import Columns
from weir._xxh3 import xxh3_64
from weir.batch import pack


def batch_of(*rows: tuple[int | None, bytes | None, bytes | None]) -> Batch:
    builder = BatchBuilder()
    for row in rows:
        builder.push(*row)
    return builder.build()


class HashTest(unittest.TestCase):
    def test_key_hash_and_key_group_match_the_vectors_of_the_contract(self) -> None:
        groups = [1, 2, 7, 128, 256, 4096, 32768]
        for key, hash, expected in [
            (b"", 0x2D06800538D394C2, [0, 1, 3, 64, 128, 2048, 16386]),
            (b"a", 0xE6C632B61E964E1F, [0, 0, 1, 25, 50, 811, 6491]),
            (b"abc", 0x78AF5F94892F3950, [0, 0, 2, 47, 95, 1529, 12234]),
        ]:
            self.assertEqual(key_hash(key), hash)
            self.assertEqual([key_group(hash, n) for n in groups], expected)

    def test_every_length_class_of_xxh3_matches_the_reference(self) -> None:
        # From the reference implementation, of the bytes i % 251.
        for length, hash in [
            (3, 0x5F4299FC161C9CBB),
            (8, 0x3A1C2D7C85AF88F8),
            (16, 0x8355E3A6F61770DB),
            (100, 0x4E4F921A64BD1C),
            (200, 0xF42A8864FEAF0703),
            (241, 0x2E8CD95421C6D02),
            (1088, 0x1A848D807034C403),
            (3000, 0x1B846747012C24AA),
        ]:
            self.assertEqual(xxh3_64(bytes(i % 251 for i in range(length))), hash, length)

    def test_groups_of_a_batch_are_those_of_its_hashes(self) -> None:
        keys = [str(i).encode() for i in range(300)]
        hashes = [key_hash(key) for key in keys]
        batch = Batch([0] * 300, Column.of(keys), Column.of([None] * 300), None, hashes, 128)
        self.assertEqual(batch.groups, [key_group(hash, 128) for hash in hashes])
        self.assertEqual(batch.groups[7], Key.of(b"7", 128).group)

    def test_records_of_an_input_that_is_not_keyed_have_no_group(self) -> None:
        self.assertEqual(batch_of((None, b"k", b"v")).groups, [-1])


class ColumnTest(unittest.TestCase):
    def test_rows_become_columns_and_come_back(self) -> None:
        for rows in (
            [b"a", b"", None, b"bc"],
            [None] * 17,
            [b"x"] * 17,
            [None, *[b"abc"] * 15, None],
            [],
        ):
            offsets, data, nulls = pack(rows)
            self.assertEqual(Column(len(rows), offsets, data, nulls).rows(), rows)

    def test_columns_are_as_the_contract_has_them(self) -> None:
        self.assertEqual(pack([b"a", None, b"bc"]), ([0, 1, 1, 3], b"abc", b"\x02"))
        self.assertEqual(pack([b"a", b"bc"]), ([0, 1, 3], b"abc", b""))
        self.assertEqual(pack([None, None]), ([], b"", b""))
        self.assertEqual(pack([b"", b""]), ([0, 0, 0], b"", b""))

    def test_text_in_a_column_is_refused_with_its_place(self) -> None:
        with self.assertRaisesRegex(TypeError, "record 1 is 'text'"):
            pack([b"bytes", "text"])  # type: ignore[list-item]


class BatchTest(unittest.TestCase):
    columns = Columns([1, -(2**63)], [], [0, 1, 2], b"kl", b"", [0, 3, 3], b"abc", b"\x02", [], b"")

    def test_a_batch_that_is_handed_on_is_made_of_the_same_objects(self) -> None:
        out = Batch.from_columns(self.columns).to_columns()
        for name in ("timestamps", "key_offsets", "keys", "values"):
            self.assertIs(getattr(out, name), getattr(self.columns, name))
        self.assertIs(Batch.from_columns(self.columns).with_values([b"x", b"y"]).to_columns().keys, self.columns.keys)

    def test_records_are_cut_out_of_columns(self) -> None:
        first, second = Batch.from_columns(self.columns)
        self.assertEqual((first.index, first.time, first.key, first.value), (0, 1, b"k", b"abc"))
        self.assertEqual((second.index, second.time, second.key, second.value), (1, None, b"l", None))
        self.assertEqual(Batch.from_columns(self.columns).record(1)[:4], second[:4])

    def test_select_takes_rows_with_their_headers(self) -> None:
        builder = BatchBuilder()
        builder.push(1, b"a", b"1")
        builder.push(2, b"b", None)
        builder.header("h", b"x")
        builder.header("h", b"")
        builder.push(3, None, b"3")
        batch = builder.build()
        picked = batch.select([1, 2])
        self.assertEqual([(r.time, r.key, r.value) for r in picked], [(2, b"b", None), (3, None, b"3")])
        self.assertEqual(picked.headers(0), [("h", b"x"), ("h", b"")])
        self.assertEqual(picked.headers(1), [])
        self.assertIs(batch.select([0, 1, 2]), batch)

    def test_headers_are_as_the_contract_has_them(self) -> None:
        builder = BatchBuilder()
        builder.push(1, None, None)
        builder.push(1, None, None)
        builder.header("n", b"value")
        columns = builder.build().to_columns()
        self.assertEqual(columns.header_offsets, [0, 0, 12])
        self.assertEqual(columns.headers, struct.pack("<H1sI5s", 1, b"n", 5, b"value"))

    def test_push_record_keeps_everything(self) -> None:
        builder = BatchBuilder()
        builder.push(5, b"k", b"v")
        builder.header("h", b"x")
        (record,) = builder.build()
        again = BatchBuilder()
        again.push(1, None, None)
        again.push_record(record)
        self.assertEqual(again.build().record(1)[1:4], (5, b"k", b"v"))
        self.assertEqual(again.build().headers(1), [("h", b"x")])
        self.assertEqual(again.build().headers(0), [])

    def test_a_built_batch_does_not_change_when_the_builder_is_used_again(self) -> None:
        builder = BatchBuilder()
        builder.push(1, b"k", b"v")
        batch = builder.build()
        builder.clear()
        builder.push(2, b"other", None)
        self.assertEqual(batch.record(0)[1:4], (1, b"k", b"v"))

    def test_columns_of_different_lengths_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "1 values for 2 records"):
            Batch.from_columns(self.columns).with_values([b"x"])

    def test_json_that_is_nested_too_deep_is_a_value_error(self) -> None:
        deep = b"[" * 101 + b"]" * 101
        quotes = deep + b'"' + b'\\"' * 500_000
        for document in (deep, b"[" * 100_000, b'{"a":' * 200 + b"1" + b"}" * 200, b'["\\\\",' + deep, quotes):
            with self.assertRaisesRegex(ValueError, "nested more than 100 deep"):
                batch_of((None, None, document)).record(0).json()
        with self.assertRaises(ValueError):
            batch_of((None, None, b"wind")).record(0).json()
        wide = b"[" + b",".join([b'{"a":"]]]]]["}'] * 500) + b"]"
        self.assertEqual(len(batch_of((None, None, wide)).record(0).json()), 500)
        self.assertEqual(weir.json.loads(b"[" * 100 + b"]" * 100)[0][0][0][0:0], [])
        self.assertIsNone(batch_of((None, None, None)).record(0).json())


if __name__ == "__main__":
    unittest.main()

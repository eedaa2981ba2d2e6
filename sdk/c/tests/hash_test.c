/* XXH3-64 against what the reference implementation (xxhash 0.8, by its Python module) says. */

#include "../weir_test.h"

static const struct {
    size_t len;
    uint64_t hash;
} vectors[] = {
    {0, 0x2d06800538d394c2u},
    {1, 0xe12ef9d2eb86ceebu},
    {2, 0x33b0814d4f061d86u},
    {3, 0xa9088dda485b481cu},
    {4, 0x57648c318a7a307eu},
    {5, 0x239bb6b88222271du},
    {8, 0xb0fb3e3c3f94990au},
    {9, 0x8aca5cb309437c2eu},
    {12, 0xbb431ec91d8102e8u},
    {16, 0x2bd926d88792965au},
    {17, 0x621f018aad19b14au},
    {31, 0x1c80db9a3e8ba043u},
    {32, 0x8911535e799e4d99u},
    {33, 0xb6d8b523db9b284cu},
    {64, 0x1b1bf114c7371f1bu},
    {65, 0xf0037f8ac0441cc4u},
    {96, 0xcfb21e0d09d8ef29u},
    {97, 0xe1415ca7902a74dau},
    {128, 0xe9549af9a74093e6u},
    {129, 0xb54ad1cd8a4c84b9u},
    {130, 0x52dc6001473ca9cbu},
    {143, 0xffbeca72453b86f9u},
    {144, 0x3f50ca07e0dcde52u},
    {145, 0xcedd46d037c8b99au},
    {239, 0x318817637cd16359u},
    {240, 0x3e136902ec966624u},
    {241, 0xbd7d29b6ba966d6au},
    {256, 0xff5a1cefade75bb9u},
    {512, 0xf6fe51471f2fa1ecu},
    {1023, 0x0805f138405a64a4u},
    {1024, 0xdc5acf0b043c445bu},
    {1025, 0xc856c953bbdbc807u},
    {2048, 0x848d24cc268f7498u},
    {2049, 0x036bbe6219dfccdau},
    {5000, 0x308f149a673a1625u},
};

WEIR_TEST(hashes_are_those_of_the_reference_implementation)
{
    static uint8_t data[5000];
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        for (size_t j = 0; j < vectors[i].len; j++) data[j] = (uint8_t)(j * 7 + vectors[i].len);
        const uint64_t hash = weir_hash(weir_bytes_of(data, vectors[i].len));
        if (hash != vectors[i].hash) fprintf(stderr, "%lu bytes: 0x%016llx\n", (unsigned long)vectors[i].len, (unsigned long long)hash);
        WEIR_CHECK(hash == vectors[i].hash);
    }
}

WEIR_TEST(key_groups_are_those_of_the_contract)
{
    static const struct {
        const char *key;
        uint64_t hash;
        uint32_t groups[7];
    } keys[] = {
        {"", 0x2d06800538d394c2u, {0, 1, 3, 64, 128, 2048, 16386}},
        {"a", 0xe6c632b61e964e1fu, {0, 0, 1, 25, 50, 811, 6491}},
        {"abc", 0x78af5f94892f3950u, {0, 0, 2, 47, 95, 1529, 12234}},
    };
    static const uint32_t of[] = {1, 2, 7, 128, 256, 4096, 32768};
    for (size_t i = 0; i < 3; i++) {
        WEIR_CHECK(weir_hash(weir_text(keys[i].key)) == keys[i].hash);
        for (size_t j = 0; j < 7; j++) WEIR_CHECK(weir_key_group(keys[i].hash, of[j]) == keys[i].groups[j]);
    }
}

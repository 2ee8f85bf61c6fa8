/* Which predefined object of Open MPI stands behind which predefined handle of MPICH.
 *
 * Data only. Symbols are looked up as ompi_mpi_<name>; a type that this build of Open MPI
 * lacks (Fortran types, 16-byte reals) stays a null handle, which Open MPI itself refuses.
 */
#ifndef SEATRIAL_TABLES_H
#define SEATRIAL_TABLES_H

struct predefined {
    int index;
    const char *name;
};

static const struct predefined TYPES[] = {
    {0x01, "char"},          {0x02, "unsigned_char"},  {0x03, "short"},
    {0x04, "unsigned_short"}, {0x05, "int"},            {0x06, "unsigned"},
    {0x07, "long"},          {0x08, "unsigned_long"},  {0x09, "long_long_int"},
    {0x0a, "float"},         {0x0b, "double"},         {0x0c, "long_double"},
    {0x0d, "byte"},          {0x0e, "wchar"},          {0x0f, "packed"},
    {0x16, "2int"},          {0x18, "signed_char"},    {0x19, "unsigned_long_long"},
    {0x37, "int8_t"},        {0x38, "int16_t"},        {0x39, "int32_t"},
    {0x3a, "int64_t"},       {0x3b, "uint8_t"},        {0x3c, "uint16_t"},
    {0x3d, "uint32_t"},      {0x3e, "uint64_t"},       {0x3f, "c_bool"},
    {0x40, "c_float_complex"}, {0x41, "c_double_complex"}, {0x42, "c_long_double_complex"},
    {0x43, "aint"},          {0x44, "offset"},         {0x45, "count"},
};

static const struct predefined PAIR_TYPES[] = {
    {0, "float_int"}, {1, "double_int"}, {2, "long_int"}, {3, "short_int"},
    {4, "longdbl_int"},
};

static const struct predefined OPS[] = {
    {1, "op_max"},  {2, "op_min"},  {3, "op_sum"},     {4, "op_prod"},    {5, "op_land"},
    {6, "op_band"}, {7, "op_lor"},  {8, "op_bor"},     {9, "op_lxor"},    {10, "op_bxor"},
    {11, "op_minloc"}, {12, "op_maxloc"}, {13, "op_replace"}, {14, "op_no_op"},
};

/* {MPICH's error class, Open MPI's}: the two agree up to MPI_ERR_TRUNCATE only in part. */
static const int ERROR_CLASSES[][2] = {
    {1, MPI_ERR_BUFFER},  {2, MPI_ERR_COUNT},    {3, MPI_ERR_TYPE},      {4, MPI_ERR_TAG},
    {5, MPI_ERR_COMM},    {6, MPI_ERR_RANK},     {7, MPI_ERR_ROOT},      {8, MPI_ERR_GROUP},
    {9, MPI_ERR_OP},      {10, MPI_ERR_TOPOLOGY}, {11, MPI_ERR_DIMS},    {12, MPI_ERR_ARG},
    {13, MPI_ERR_UNKNOWN}, {14, MPI_ERR_TRUNCATE}, {15, MPI_ERR_OTHER},  {16, MPI_ERR_INTERN},
    {17, MPI_ERR_IN_STATUS}, {18, MPI_ERR_PENDING}, {19, MPI_ERR_REQUEST}, {28, MPI_ERR_INFO},
    {34, MPI_ERR_NO_MEM},
};

#endif

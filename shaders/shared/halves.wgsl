// The bits of the nearest f16, ties to even, by integers alone: what pack2x16float rounds to is a driver's choice.

fn half_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if size > 0x7f800000u {
        return sign | 0x7e00u;
    }
    if size >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    if size < 0x33000000u {
        return sign;
    }
    // below 2^-14 halves are 2^-24 apart: the significand moves further right
    let exponent = size >> 23u;
    let shift = select(13u, 126u - exponent, exponent < 113u);
    let significand = select(size - 0x38000000u, (size & 0x7fffffu) | 0x800000u, exponent < 113u);
    let below = (1u << (shift - 1u)) - 1u + ((significand >> shift) & 1u);
    return sign | ((significand + below) >> shift);
}

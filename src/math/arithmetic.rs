//! What the implementations of [`Real`](super::Real) for f32 and f64 have in common.

/// Writes the arithmetic of vectors and numbers for one precision, with the names that [`pulp::Simd`] has for it.
macro_rules! real_arithmetic {
    (
        $real:ident, $vector:ident, splat: $splat:ident, multiply_add: $multiply_add:ident, negative: $negative:ident,
        multiply: $multiply:ident, plus: $plus:ident, minus: $minus:ident, divide: $divide:ident, larger: $larger:ident,
        select: $select:ident, less_than: $less_than:ident, vectors: $vectors:ident, vectors_mut: $vectors_mut:ident,
        total: $total:ident
    ) => {
        type Vector<S: Simd> = S::$vector;
        #[inline(always)]
        fn splat<S: Simd>(simd: S, x: $real) -> S::$vector {
            simd.$splat(x)
        }
        #[inline(always)]
        fn multiply_add<S: Simd>(
            simd: S,
            a: S::$vector,
            b: S::$vector,
            c: S::$vector,
        ) -> S::$vector {
            simd.$multiply_add(a, b, c)
        }
        #[inline(always)]
        fn subtract_product<S: Simd>(
            simd: S,
            c: S::$vector,
            a: S::$vector,
            b: S::$vector,
        ) -> S::$vector {
            simd.$multiply_add(simd.$negative(a), b, c)
        }
        #[inline(always)]
        fn multiply<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$multiply(a, b)
        }
        #[inline(always)]
        fn plus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$plus(a, b)
        }
        #[inline(always)]
        fn minus<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$minus(a, b)
        }
        #[inline(always)]
        fn divide<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$divide(a, b)
        }
        #[inline(always)]
        fn larger<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$larger(a, b)
        }
        #[inline(always)]
        fn choose_less<S: Simd>(
            simd: S,
            a: S::$vector,
            b: S::$vector,
            yes: S::$vector,
            no: S::$vector,
        ) -> S::$vector {
            simd.$select(simd.$less_than(a, b), yes, no)
        }
        #[inline(always)]
        fn inverse_above<S: Simd>(simd: S, limit: S::$vector, a: S::$vector) -> S::$vector {
            let inverse = simd.$divide(simd.$splat(1.0), a);
            let is_above = simd.$less_than(limit, a);
            simd.$select(is_above, inverse, simd.$splat($real::NAN))
        }
        #[inline(always)]
        fn vectors<S: Simd>(slice: &[$real]) -> &[S::$vector] {
            S::$vectors(slice).0
        }
        #[inline(always)]
        fn vectors_mut<S: Simd>(slice: &mut [$real]) -> &mut [S::$vector] {
            S::$vectors_mut(slice).0
        }
        #[inline(always)]
        fn total<S: Simd>(simd: S, a: S::$vector) -> $real {
            simd.$total(a)
        }
        #[inline(always)]
        fn elements<S: Simd>(vectors: &[S::$vector]) -> &[$real] {
            bytemuck::cast_slice(vectors)
        }
        #[inline(always)]
        fn fused(self, b: $real, c: $real) -> $real {
            self.mul_add(b, c)
        }
        #[inline(always)]
        fn root(self) -> $real {
            self.sqrt()
        }
        #[inline(always)]
        fn maximum(self, other: $real) -> $real {
            self.max(other)
        }
        #[inline(always)]
        fn minimum(self, other: $real) -> $real {
            self.min(other)
        }
        fn convert(values: &Values) -> Vec<$real> {
            convert_values(values)
        }
        const ZERO: $real = 0.0;
        const ONE: $real = 1.0;
        const NAN: $real = $real::NAN;
    };
}

pub(super) use real_arithmetic;

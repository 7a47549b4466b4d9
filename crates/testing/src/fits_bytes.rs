//! Writes FITS files for tests: another writer than popfit's.

pub const BLOCK: usize = 2880;

/// The bytes of a file under construction.
#[derive(Clone, Default)]
pub struct FitsBytes(pub Vec<u8>);

impl FitsBytes {
    /// Begins a file with an empty primary unit and these cards.
    pub fn new(cards: &[&str]) -> FitsBytes {
        let mut all_cards = vec!["SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 0"];
        all_cards.extend(cards);
        FitsBytes::default().unit(&all_cards, &[])
    }

    /// Appends a unit with any header and any data.
    pub fn unit(mut self, cards: &[&str], data: &[u8]) -> FitsBytes {
        let header: String = cards
            .iter()
            .chain(&["END"])
            .map(|card| format!("{card:<80}"))
            .collect();
        self.0.extend(header.into_bytes());
        self.0.resize(self.0.len().next_multiple_of(BLOCK), b' ');
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// Appends an image; `shape` has the slowest axis first.
    pub fn image(
        self,
        name: &str,
        bitpix: i64,
        shape: &[usize],
        data: &[u8],
        extra_cards: &[&str],
    ) -> FitsBytes {
        let mut cards = vec![
            "XTENSION= 'IMAGE'".to_string(),
            format!("BITPIX  = {bitpix}"),
        ];
        cards.push(format!("NAXIS   = {}", shape.len()));
        cards.extend(
            (1..)
                .zip(shape.iter().rev())
                .map(|(k, n)| format!("NAXIS{k}  = {n}")),
        );
        cards.push(format!("EXTNAME = '{name}'"));
        let cards: Vec<&str> = cards
            .iter()
            .map(String::as_str)
            .chain(extra_cards.iter().copied())
            .collect();
        self.unit(&cards, data)
    }

    /// Appends a table of columns (name, TFORM, one cell per row).
    pub fn table(
        self,
        name: &str,
        columns: &[(&str, &str, Vec<Vec<u8>>)],
        extra_cards: &[&str],
    ) -> FitsBytes {
        let rows = columns.first().map_or(0, |(_, _, cells)| cells.len());
        let width: usize = columns
            .iter()
            .map(|(_, _, cells)| cells.first().map_or(0, Vec::len))
            .sum();
        let data: Vec<u8> = (0..rows)
            .flat_map(|row| columns.iter().flat_map(move |column| column.2[row].clone()))
            .collect();
        let mut cards = vec![
            "XTENSION= 'BINTABLE'".to_string(),
            "BITPIX  = 8".into(),
            "NAXIS   = 2".into(),
        ];
        cards.extend([format!("NAXIS1  = {width}"), format!("NAXIS2  = {rows}")]);
        cards.extend([
            "PCOUNT  = 0".into(),
            "GCOUNT  = 1".into(),
            format!("TFIELDS = {}", columns.len()),
        ]);
        for (k, (name, form, _)) in (1..).zip(columns) {
            cards.extend([
                format!("{:<8}= '{name}'", format!("TTYPE{k}")),
                format!("{:<8}= '{form}'", format!("TFORM{k}")),
            ]);
        }
        cards.push(format!("EXTNAME = '{name}'"));
        let cards: Vec<&str> = cards
            .iter()
            .map(String::as_str)
            .chain(extra_cards.iter().copied())
            .collect();
        self.unit(&cards, &data)
    }
}

pub fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_be_bytes()).collect()
}

pub fn f64s(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_be_bytes()).collect()
}

pub fn i32s(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_be_bytes()).collect()
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// Spectra of the small DESI file, pixels of its arms, and its first TARGETID, beyond 2⁵³.
pub const COUNT: usize = 4;
pub const ARMS: [(&str, usize); 2] = [("B", 5), ("R", 3)];
pub const LARGE_ID: i64 = 39_627_652_591_523_841;

pub fn flux(row: usize, pixel: usize) -> f32 {
    (10 * row + pixel) as f32 + 0.5
}

pub fn fibermap(file: FitsBytes) -> FitsBytes {
    let cells = |get: &dyn Fn(usize) -> Vec<u8>| (0..COUNT).map(get).collect::<Vec<_>>();
    let kinds = ["TGT", "SKY", "TGT", "TGT"];
    file.table(
        "FIBERMAP",
        &[
            (
                "TARGETID",
                "K",
                cells(&|k| (LARGE_ID + k as i64).to_be_bytes().to_vec()),
            ),
            ("OBJTYPE", "3A", cells(&|k| kinds[k].as_bytes().to_vec())),
            (
                "FLAGS",
                "J",
                cells(&|k| (i32::MIN + k as i32).to_be_bytes().to_vec()),
            ),
            ("VECTOR", "2E", cells(&|k| f32s(&[k as f32; 2]))),
        ],
        &["TZERO3  = 2147483648", "TUNIT3  = 'bits'"],
    )
}

/// One arm: the mask is an unsigned integer (zero is −2³¹ in the file), ivar = 100 / (row + 1).
pub fn arm(file: FitsBytes, name: &str, pixels: usize) -> FitsBytes {
    let grid: Vec<f64> = (0..pixels).map(|j| 5000.0 + j as f64).collect();
    let positions = || (0..COUNT).flat_map(|row| (0..pixels).map(move |pixel| (row, pixel)));
    let fluxes: Vec<f32> = positions().map(|(row, pixel)| flux(row, pixel)).collect();
    let ivar: Vec<f32> = positions()
        .map(|(row, _)| 100.0 / (row + 1) as f32)
        .collect();
    let mask: Vec<i32> = positions()
        .map(|(row, pixel)| if row == pixel { 7 } else { i32::MIN })
        .collect();
    let resolution: Vec<f32> = (0..COUNT * 3 * pixels).map(|k| k as f32).collect();
    let shape = [COUNT, pixels];
    file.image(
        &format!("{name}_WAVELENGTH"),
        -64,
        &[pixels],
        &f64s(&grid),
        &[],
    )
    .image(&format!("{name}_FLUX"), -32, &shape, &f32s(&fluxes), &[])
    .image(&format!("{name}_IVAR"), -32, &shape, &f32s(&ivar), &[])
    .image(
        &format!("{name}_MASK"),
        32,
        &shape,
        &i32s(&mask),
        &["BZERO   = 2147483648"],
    )
    .image(
        &format!("{name}_RESOLUTION"),
        -32,
        &[COUNT, 3, pixels],
        &f32s(&resolution),
        &[],
    )
}

/// A whole file of DESI's layout.
pub fn desi() -> FitsBytes {
    ARMS.iter()
        .fold(fibermap(FitsBytes::new(&[])), |file, (name, pixels)| {
            arm(file, name, *pixels)
        })
}

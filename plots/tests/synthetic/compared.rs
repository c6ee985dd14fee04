//! Tables as a validation or a comparison with Horovod would write them. Every number is made up: nothing was measured, and
//! nothing simulated.

/// Points of two machines: met, missed for a reason, fitted, and missed for none.
pub fn published() -> String {
    "point,machine,ranks,unit,published,simulated,error,fitted,verdict,why,source,group,perfect,simulated_low,simulated_high\n\
     \"8 H200, ring\",dgx,8,GB/s bus,366,370,0.0109,false,met,,a page,allreduce,,360,380\n\
     \"8 H200, NVLS\",dgx,8,GB/s bus,473,370,-0.2178,false,missed,the switch reduces,a page,allreduce,,360,380\n\
     ResNet-50,v100,8,samples/s,3000,3390,0.13,false,met,,a paper,one node,3000,2900,3400\n\
     VGG-16,v100,8,samples/s,1000,1001,0.001,true,met,,a paper,one node,1000,990,1010\n\
     \"16 A100, 512 B\",v100,16,us,90,120,0.3333,false,missed,,a paper,allreduce,,80,130\n"
        .to_string()
}

/// Two algorithms over five sizes, the smaller ones not scored.
pub fn validation() -> String {
    let mut text = "transport,nodes,ranks,algorithm,size_bytes,blocks,predicted_us,measured_us,\
                    error,error_low,error_high,scored,oversubscribed\n"
        .to_string();
    let of_ring = [500.0, 140.0, 95.0, 108.0, 92.0];
    let of_tree = [30.0, 120.0, 88.0, 104.0, 114.0];
    for (algorithm, predicted) in [("ring", of_ring), ("tree", of_tree)] {
        for (power, predicted_us) in [6, 10, 16, 20, 24].into_iter().zip(predicted) {
            let (size, error) = (1 << power, predicted_us / 100.0 - 1.0);
            let scored = power >= 16;
            let (low, high) = (error - 0.04, error + 0.05);
            text += &format!(
                "mpi,1,4,{algorithm},{size},9,{predicted_us},100,{error:.4},{low:.4},{high:.4},\
                 {scored},false\n"
            );
        }
    }
    text
}

/// Four cases of kolo and Horovod, two of them with intervals, one far off.
pub fn against() -> String {
    "case,group,variant,fusion_threshold_bytes,cycle_time_ms,blocks,kolo_ms,kolo_ms_low,kolo_ms_high,horovod_ms,horovod_ms_low,horovod_ms_high,ratio,ratio_low,\
     ratio_high,control_ratio,agrees,emulated,oversubscribed,reason\n\
     resnet50:a,resnet50 1x2,bitvector,67108864,1,6,76,75.5,77,75,74.5,76,1.013,0.99,1.03,1.01,true,false,false,\n\
     resnet50:mpi/1x2/bitvector/mpi-allreduce/128MiB/1ms,resnet50 1x2,bitvector,134217728,1,6,90,88,93,100,97,104,0.9,0.88,0.93,0.99,false,false,false,\n\
     vgg16:a,vgg16 1x4,bitvector,67108864,1,2,250,,,240,,,1.04,,,1.02,,false,true,\n\
     vgg16:b,vgg16 1x4,coordinator,67108864,1,2,130,,,125,,,1.04,,,1.0,,false,true,\n"
        .to_string()
}
